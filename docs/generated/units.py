"""A page for every matrix unit, from what `fp8lab list --json` says: parameters, evidence, how to try it."""

import json
import subprocess

STANDINGS = {
    "measured": "The model reproduces recorded outputs of the chip without a mismatch.",
    "specified": "The vendor publishes the rule as pseudo-code; no recorded outputs were available for a comparison.",
    "from literature": "Others published the model; no recorded outputs were available for a comparison.",
    "assumed": "Inferred from related units; not published.",
    "definition": "Not hardware: a reference or a teaching model, exact by definition.",
}
PARAMETERS = (
    ("input", "operands"), ("accumulation", "kind of accumulation"), ("terms", "products per step"),
    ("alignment_bits", "fraction bits of aligned terms (F)"), ("output_bits", "fraction bits of a step's sum (M)"),
    ("rounding", "rounding of a step's sum"), ("output", "format of the sum"),
    ("min_exponent", "smallest exponent of the alignment"), ("second_stage_bits", "fraction bits of the second stage"),
    ("block_scales", "block scales that the unit applies"),
)
FAMILIES = {"sm70": "NVIDIA Volta", "sm75": "NVIDIA Turing", "sm80": "NVIDIA Ampere", "sm86": "NVIDIA Ampere (A2)", "sm89": "NVIDIA Ada",
            "sm90": "NVIDIA Hopper", "sm100": "NVIDIA Blackwell", "sm120": "NVIDIA Blackwell (RTX)", "gfx908": "AMD CDNA1", "gfx90a": "AMD CDNA2",
            "gfx942": "AMD CDNA3", "x86": "x86 (AVX-512, AMX, ACE)", "arm": "Arm (Advanced SIMD, SVE)"}


def listed(tool):
    """What the tool lists, all kinds."""
    return json.loads(subprocess.run([tool, "list", "--json"], check=True, capture_output=True, text=True).stdout)


def family(name):
    return FAMILIES.get(name.split(".")[0], "Definitions")


def page_of(model):
    """One unit's page."""
    name = model["name"]
    rows = [f"| {words} | {model[key]} |" for key, words in PARAMETERS if model[key] not in (None, "")]
    evidence = model["evidence"] or "none: no recorded outputs of this unit were available"
    lines = [f"# {name}", "", f"{family(name)}. **{model['standing'].capitalize()}.** {STANDINGS[model['standing']]}", "",
             "| | |", "|---|---|", *rows, "", f"**Source.** {model['source']}.", "", f"**Recordings.** {evidence}.", "",
             "The [specification](../specification/accumulation.md) defines what each kind of accumulation computes; a separate page has the "
             "[units known from literature](../specification/units-from-literature.md), another one the "
             "[units of processors](../specification/units-of-processors.md).", "", "```",
             f"$ fp8lab gemm a.npy b.npy --model {name} -o d.npy", f"$ fp8lab vectors --model {name} -o cases.txt",
             f"$ fp8lab expect --shape 128x128x4096 --model {name}", "```", ""]
    return "\n".join(lines)


def pages(models):
    """Path in the site -> text, the index first."""
    lines = ["# Matrix units", "", "One page per unit: its parameters, their source, and how well they are known.", ""]
    lines += [f"- *{standing}*: {meaning}" for standing, meaning in STANDINGS.items()]
    last = None
    for model in models:
        if family(model["name"]) != last:
            last = family(model["name"])
            lines += ["", f"## {last}", "", "| unit | operands | how well it is known | recordings |", "|---|---|---|---|"]
        lines.append(f"| [{model['name']}]({model['name']}.md) | {model['input']} | {model['standing']} | {model['evidence'] or ''} |")
    found = {"units/index.md": "\n".join(lines) + "\n"}
    found.update({f"units/{model['name']}.md": page_of(model) for model in models})
    return found
