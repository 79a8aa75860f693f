#pragma once
// The groups of claims, each defined in a source file of its own.

#include <vector>

#include "claims/claim.hpp"

namespace fp8lab::experiments {

std::vector<Claim> failure_mode_claims();   ///< F1 - F3
std::vector<Claim> accumulator_claims();    ///< F4 - F4c
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

}  // namespace fp8lab::experiments
