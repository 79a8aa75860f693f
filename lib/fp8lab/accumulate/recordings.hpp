#pragma once
// The files of recorded outputs that stand behind a measured model. The rows of each are of one
// GPU; tests/golden/silicon has some of them.

#include <array>
#include <string_view>

#include "fp8lab/accumulate/model.hpp"

namespace fp8lab {

/// The cases that `fp8lab-cuda record` makes for an instruction.
constexpr ReplayedRows on_h200(std::string_view recording) { return {recording, "H200", 10240}; }

constexpr std::array kVolta{ReplayedRows{"v100_mma_f16", "V100", 500}};
constexpr std::array kVoltaHalf{ReplayedRows{"v100_mma_f16_f16out", "V100", 250}};
constexpr std::array kAmpere{ReplayedRows{"a100_mma_f16", "A100", 1000}};
constexpr std::array kAmpereHalf{ReplayedRows{"a100_mma_f16_f16out", "A100", 500}};
constexpr std::array kAda{ReplayedRows{"ada_mma_e4m3", "Ada", 2000}};
constexpr std::array kAdaHalf{ReplayedRows{"ada_mma_e4m3_f16out", "Ada", 1000}};
constexpr std::array kHopperF16{on_h200("h200_mma_f16")};
constexpr std::array kHopperBf16{ReplayedRows{"h100_mma_bf16", "H100", 1000},
                                 on_h200("h200_mma_bf16")};
constexpr std::array kHopperRowsTf32{on_h200("h200_mma_tf32")};
constexpr std::array kHopperF16Half{ReplayedRows{"h100_mma_f16_f16out", "H100", 500},
                                    on_h200("h200_mma_f16_f16out")};
constexpr std::array kHopperE4m3{ReplayedRows{"h100_mma_e4m3", "H100", 1000},
                                 on_h200("h200_mma_e4m3")};
constexpr std::array kHopperE5m2{ReplayedRows{"h100_mma_e5m2", "H100", 1000},
                                 on_h200("h200_mma_e5m2")};
constexpr std::array kHopperE4m3Half{ReplayedRows{"h100_mma_e4m3_f16out", "H100", 1000},
                                     on_h200("h200_mma_e4m3_f16out")};
constexpr std::array kHopperE5m2Half{ReplayedRows{"h100_mma_e5m2_f16out", "H100", 1000},
                                     on_h200("h200_mma_e5m2_f16out")};
constexpr std::array kWgmmaF16{on_h200("h200_wgmma_f16")};
constexpr std::array kWgmmaF16Half{on_h200("h200_wgmma_f16_f16out")};
constexpr std::array kWgmmaBf16{on_h200("h200_wgmma_bf16")};
constexpr std::array kWgmmaTf32{on_h200("h200_wgmma_tf32")};
constexpr std::array kWgmmaE4m3{ReplayedRows{"h100_wgmma_e4m3", "H100", 2000},
                                on_h200("h200_wgmma_e4m3")};
constexpr std::array kWgmmaE5m2{ReplayedRows{"h100_wgmma_e5m2", "H100", 2000},
                                on_h200("h200_wgmma_e5m2")};
constexpr std::array kWgmmaE4m3E5m2{on_h200("h200_wgmma_e4m3_e5m2")};
constexpr std::array kWgmmaE5m2E4m3{on_h200("h200_wgmma_e5m2_e4m3")};
constexpr std::array kWgmmaE4m3Half{on_h200("h200_wgmma_e4m3_f16out")};
constexpr std::array kWgmmaE5m2Half{on_h200("h200_wgmma_e5m2_f16out")};
constexpr std::array kWgmmaE4m3E5m2Half{on_h200("h200_wgmma_e4m3_e5m2_f16out")};
constexpr std::array kWgmmaE5m2E4m3Half{on_h200("h200_wgmma_e5m2_e4m3_f16out")};
constexpr std::array kBlackwellE4m3{ReplayedRows{"b200_mma_e4m3", "B200", 1000}};
constexpr std::array kBlackwellE5m2{ReplayedRows{"b200_mma_e5m2", "B200", 1000}};

}  // namespace fp8lab
