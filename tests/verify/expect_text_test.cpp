// The report of an expectation, word for word, of numbers that are all different.

#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/verify/expect.hpp"

using namespace fp8lab;

TEST_CASE("expect: the whole report, word for word", "[verify]") {
  Expectation e;
  ExpectOptions& o = e.options;
  o.m = 12;
  o.n = 34;
  o.k = 56;
  o.trials = 78;
  o.seed = 9;
  o.risk = 0.002;
  o.gemm.model = "sm89.mma.e4m3";
  o.gemm.promotion_interval = 32;
  o.gemm.output = default_output(FormatId::f16);
  o.distribution = Distribution::student_t;
  e.sample_rows = 10;
  e.sample_columns = 30;
  e.rms = 1234.5678;
  double next = 1.0;
  for (const ReferenceKind kind : {ReferenceKind::fp64, ReferenceKind::fp32, ReferenceKind::bf16}) {
    ExpectedGate gate;
    gate.reference = kind;
    const auto number = [&] { return (next += 1.0) * 1.0625e-3; };
    gate.rtol = number();
    gate.atol = number();
    gate.calc_diff = number();
    gate.cosine = 1.0 - number();
    gate.max_ulp = static_cast<std::uint64_t>(1000.0 * next);
    for (const char* name : {"relative_l2", "calc_diff", "one_minus_cosine", "excess", "max_ulp"}) {
      const double median = number();
      const double largest = number();
      gate.metrics.push_back({name, median, largest, number()});
    }
    e.gates.push_back(gate);
    std::vector<ExpectedFault> faults;
    for (unsigned seen = 0; seen < 6; ++seen) {
      ExpectedFault fault;
      fault.name =
          std::string("fault_") + std::to_string(seen) + "_" + std::string(to_string(kind));
      fault.text = "the text of " + fault.name;
      fault.size = 0.25 * seen;
      fault.close = seen % 2 == 1;
      fault.calc_diff = seen >= 2;
      fault.cosine = seen == 3 || seen == 5;
      fault.max_ulp = seen == 2 && kind == ReferenceKind::fp32;
      faults.push_back(fault);
    }
    e.faults.push_back(faults);
  }
  CHECK(describe(e) ==
        "12 x 34 x 56, sm89.mma.e4m3, promotion 32, f16 output, cast without a scale, student_t: "
        "78 trials of 10 x 30 outputs, seed 9\n"
        "right outputs have an RMS of 1234.57\n"
        "against fp64: rtol 0.00213 atol 0.00319, calc_diff < 0.00425, cosine > 0.9946875, "
        "max_ulp 5000\n"
        "  relative_l2       median 0.00638    largest 0.00744    at risk 0.002: 0.0085\n"
        "  calc_diff         median 0.00956    largest 0.0106     at risk 0.002: 0.0117\n"
        "  one_minus_cosine  median 0.0128     largest 0.0138     at risk 0.002: 0.0149\n"
        "  excess            median 0.0159     largest 0.017      at risk 0.002: 0.0181\n"
        "  max_ulp           median 0.0191     largest 0.0202     at risk 0.002: 0.0213\n"
        "  rtol/atol  smallest fault caught fault_1_fp64 (0.25), largest missed fault_4_fp64 "
        "(1)\n"
        "  calc_diff  smallest fault caught fault_2_fp64 (0.5), largest missed fault_1_fp64 "
        "(0.25)\n"
        "  cosine     smallest fault caught fault_3_fp64 (0.75), largest missed fault_4_fp64 "
        "(1)\n"
        "  max_ulp    smallest fault caught none, largest missed fault_5_fp64 (1.25)\n"
        "against fp32: rtol 0.0223 atol 0.0234, calc_diff < 0.0244, cosine > 0.9745, max_ulp "
        "24000\n"
        "  relative_l2       median 0.0266     largest 0.0276     at risk 0.002: 0.0287\n"
        "  calc_diff         median 0.0298     largest 0.0308     at risk 0.002: 0.0319\n"
        "  one_minus_cosine  median 0.0329     largest 0.034      at risk 0.002: 0.0351\n"
        "  excess            median 0.0361     largest 0.0372     at risk 0.002: 0.0383\n"
        "  max_ulp           median 0.0393     largest 0.0404     at risk 0.002: 0.0414\n"
        "  rtol/atol  smallest fault caught fault_1_fp32 (0.25), largest missed fault_4_fp32 "
        "(1)\n"
        "  calc_diff  smallest fault caught fault_2_fp32 (0.5), largest missed fault_1_fp32 "
        "(0.25)\n"
        "  cosine     smallest fault caught fault_3_fp32 (0.75), largest missed fault_4_fp32 "
        "(1)\n"
        "  max_ulp    smallest fault caught fault_2_fp32 (0.5), largest missed fault_5_fp32 "
        "(1.25)\n"
        "against bf16: rtol 0.0425 atol 0.0436, calc_diff < 0.0446, cosine > 0.9543125, max_ulp "
        "43000\n"
        "  relative_l2       median 0.0467     largest 0.0478     at risk 0.002: 0.0489\n"
        "  calc_diff         median 0.0499     largest 0.051      at risk 0.002: 0.0521\n"
        "  one_minus_cosine  median 0.0531     largest 0.0542     at risk 0.002: 0.0553\n"
        "  excess            median 0.0563     largest 0.0574     at risk 0.002: 0.0584\n"
        "  max_ulp           median 0.0595     largest 0.0606     at risk 0.002: 0.0616\n"
        "  rtol/atol  smallest fault caught fault_1_bf16 (0.25), largest missed fault_4_bf16 "
        "(1)\n"
        "  calc_diff  smallest fault caught fault_2_bf16 (0.5), largest missed fault_1_bf16 "
        "(0.25)\n"
        "  cosine     smallest fault caught fault_3_bf16 (0.75), largest missed fault_4_bf16 "
        "(1)\n"
        "  max_ulp    smallest fault caught none, largest missed fault_5_bf16 (1.25)\n"
        "faults by their relative L2 error, and the gates against fp32 that catch them:\n"
        "  fault_0_fp32               0          passes all                             the text "
        "of fault_0_fp32\n"
        "  fault_1_fp32               0.25       rtol/atol                              the text "
        "of fault_1_fp32\n"
        "  fault_2_fp32               0.5        calc_diff, max_ulp                     the text "
        "of fault_2_fp32\n"
        "  fault_3_fp32               0.75       rtol/atol, calc_diff, cosine           the text "
        "of fault_3_fp32\n"
        "  fault_4_fp32               1          calc_diff                              the text "
        "of fault_4_fp32\n"
        "  fault_5_fp32               1.25       rtol/atol, calc_diff, cosine           the text "
        "of fault_5_fp32\n"
        "gates at this risk are extrapolated (see docs/expect.md)\n");
  o.recipe = "te-current";
  o.operands = GemmOperands{};
  const std::string text = describe(e);
  CHECK(text.substr(0, text.find('\n') + 1) ==
        "12 x 34 x 56, sm89.mma.e4m3, promotion 32, f16 output, te-current, operands given: 78 "
        "trials of 10 x 30 outputs, seed 9\n");
}
