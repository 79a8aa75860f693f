#pragma once
// The groups of claims, each defined in a source file of its own.

#include <vector>

#include "claims/claim.hpp"

namespace fp8lab::experiments {

std::vector<Claim> failure_mode_claims();   ///< F1 - F1a, F1c - F3
std::vector<Claim> accumulator_claims();    ///< F4 - F4d
std::vector<Claim> listing_claims();        ///< L1 - L8
std::vector<Claim> guide_listing_claims();  ///< L9 - L11
std::vector<Claim> auto_scaling_claims();   ///< A1 - A4, A8
std::vector<Claim> optimizer_claims();      ///< A6, A7, A9, S11
std::vector<Claim> scaling_claims();        ///< S1 - S3, S5, S6, S12
std::vector<Claim> system_claims();         ///< S4, S7 - S10
std::vector<Claim> naive_run_claims();      ///< T1, T2, T6, T7
std::vector<Claim> published_claims();      ///< P1 - P6
std::vector<Claim> training_claims();       ///< T3 - T5
std::vector<Claim> state_claims();          ///< A5
std::vector<Claim> chip_claims();           ///< F1b, F4e
std::vector<Claim> watched_claims();        ///< F3a, T8
std::vector<Claim> conversion_claims();     ///< L12, S13 - S15
std::vector<Claim> traffic_claims();        ///< F5, S16, P7 - P9

}  // namespace fp8lab::experiments
