#include "help_texts.hpp"

#include <algorithm>
#include <array>
#include <iterator>

namespace fp8lab::cli {
namespace {

/// Words with blanks between them.
bool has_word(std::string_view words, std::string_view word) {
  for (std::size_t at = words.find(word); at != words.npos; at = words.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    if ((at == 0 || words[at - 1] == ' ') && (end == words.size() || words[end] == ' '))
      return true;
  }
  return false;
}

struct Group {
  std::string_view name;
  std::string_view members;
};

template <std::size_t N>
std::string_view group_with(const std::array<Group, N>& groups, std::string_view member) {
  for (const Group& group : groups)
    if (has_word(group.members, member)) return group.name;
  return {};
}

constexpr std::string_view kOthers = "Options";

/// Of all commands but those below.
constexpr std::array<Group, 9> kOptions{{
    {"Operands",
     "inputs golden cast dtype dtype-b transpose-b recipe c tensor role product history "
     "calibration stochastic hadamard transpose q k v"},
    {"Scales",
     "scale tiles scale-a scale-b tiles-a tiles-b scale-layout-a scale-layout-b scale-format "
     "tensor-scale-a tensor-scale-b multipliers scale-q scale-k scale-v"},
    {"Groups", "batched row-ends row-indices row-counts k-ends group-alignment ungrouped"},
    {"Product",
     "call model models promotion scale-order c-enters split-k split-cut split-order "
     "split-tile backend qk-model pv-model kind two-level"},
    {"Output of the product",
     "alpha bias row-scales column-scales beta activation slope "
     "activation-ulps output-scale out-dtype profile"},
    {"Check", "check gate fault-matrix tolerance trials risk top originals check-dtype"},
    {"Runs",
     "quick set axis repeat seed shard point-seconds resume mpi dry-run distribution shape"},
    {"Results", "output out log map no-plots verbose csv json progress separate layout"},
    {kOthers, "threads help"},
}};

constexpr std::array<Group, 6> kTraining{{
    {"Recipe",
     "recipe model models format history margin amax-algorithm rule keep "
     "clip-before-cast"},
    {"Optimizer",
     "optimizer master first-moment second-moment stored-gradient clip-norm "
     "weight-decay learning-rate warmup loss-scale"},
    {"Ranks", "ranks wire gradient-scaling topology zero"},
    {"Model and data",
     "vocabulary width layers heads hidden length sequences outlier-channels "
     "outlier-log2 text steps"},
    {"Watching the run", "checkpoint save-every log monitor-every guard stop-when json"},
    {kOthers, "seed threads help"},
}};

constexpr std::array<std::string_view, 14> kOptionOrder{
    "Operands", "Scales",    "Groups", "Product",        "Output of the product", "Check",
    "Recipe",   "Optimizer", "Ranks",  "Model and data", "Watching the run",      "Runs",
    "Results",  kOthers};

constexpr std::array<Group, 4> kCommands{{
    {"Is a kernel right?", "verify identify reveal expect replay vectors"},
    {"What does the hardware compute?",
     "table cast gemm attn quantize dequantize check layers cost probe-cpu"},
    {"Where does FP8 fail?", "run sweep merge claims train report"},
    {"This program", "list bench doctor completion manual help"},
}};

constexpr std::array<std::string_view, 5> kCommandOrder{
    "Is a kernel right?", "What does the hardware compute?", "Where does FP8 fail?", "This program",
    "Other commands"};

struct Examples {
  std::string_view command;
  std::array<std::string_view, 3> lines;
};

constexpr std::array<Examples, 23> kExamples{{
    {"verify",
     {"verify mine.npy --inputs a.npy b.npy --dtype e4m3fn --model sm90.wgmma.e4m3 --promotion 128",
      "verify mine.npy --inputs a.npy b.npy --dtype e4m3fn --call deepgemm.h100 --scale-a sa.npy "
      "--scale-b sb.npy",
      "verify codes.npy --inputs x.npy --cast e4m3fn"}},
    {"identify", {"identify a.npy b.npy mine.npy --dtype e4m3fn"}},
    {"reveal", {"reveal --probes rounds --dtype e4m3fn -m 32 -n 32 -k 256"}},
    {"expect",
     {"expect --shape 4096x4096x4096 --model sm90.wgmma.e4m3 --promotion 128 --out-dtype bf16"}},
    {"replay", {"replay recording.npz --model sm90.wgmma.e4m3"}},
    {"vectors", {"vectors --model sm90.wgmma.e4m3 -n 64 -o golden.npz"}},
    {"table", {"table e4m3fn"}},
    {"cast", {"cast 464 0.3 --format e4m3fn", "cast 1e-4 --format e5m2 --profile ocp_saturating"}},
    {"gemm",
     {"gemm a.npy b.npy --dtype e4m3fn --model sm90.wgmma.e4m3 --promotion 128 -o golden.npy",
      "gemm a.npy b.npy --dtype e4m3fn --call cublaslt.h100.slow --activation relu"}},
    {"quantize",
     {"quantize weights.safetensors --recipe deepgemm -o fp8.safetensors",
      "quantize MODEL-FOLDER --recipe te-mxfp8 --layout compressed-tensors -o OUT"}},
    {"dequantize", {"dequantize MODEL-FOLDER -o OUT"}},
    {"check", {"check MODEL-FOLDER --original ORIGINAL-FOLDER"}},
    {"cost", {"cost --model 7b"}},
    {"layers", {"layers MODEL-FOLDER --rule deepseek-v3"}},
    {"run",
     {"run outlier --quick", "run all --quick --out out", "run outlier --set tiles=16,64 -v"}},
    {"sweep", {"sweep outlier --axis tiles=16:256:*2 --axis sigma=0.1,0.4 --repeat 5 --out grid"}},
    {"merge", {"merge shard0 shard1 -o grid"}},
    {"claims", {"claims F2 F4 A5"}},
    {"train", {"train --recipe te-delayed --steps 200", "train --recipe fp8-lm --ranks 8"}},
    {"report", {"report out -o report.html"}},
    {"list",
     {"list models", "list models --chip sm90 --input e4m3", "list models sm90.wgmma.e4m3"}},
    {"bench", {"bench cast"}},
    {"completion", {"completion bash > ~/.local/share/bash-completion/completions/fp8lab"}},
}};

}  // namespace

std::string_view group_of_option(std::string_view command, std::string_view option) {
  std::string_view found;
  if (command == "train") found = group_with(kTraining, option);
  if (found.empty()) found = group_with(kOptions, option);
  return found.empty() ? kOthers : found;
}

std::span<const std::string_view> option_groups() { return kOptionOrder; }

std::string_view group_of_command(std::string_view command) {
  const std::string_view found = group_with(kCommands, command);
  return found.empty() ? kCommandOrder.back() : found;
}

std::span<const std::string_view> command_groups() { return kCommandOrder; }

std::vector<std::string_view> examples_of(std::string_view command) {
  std::vector<std::string_view> lines;
  for (const Examples& examples : kExamples)
    if (examples.command == command)
      std::ranges::copy_if(examples.lines, std::back_inserter(lines),
                           [](std::string_view line) { return !line.empty(); });
  return lines;
}

}  // namespace fp8lab::cli
