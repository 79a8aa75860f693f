#pragma once
// The work whose speed is the FMA peak of one thread.

namespace fp8lab::bench {

/// Runs `rounds` rounds of independent fused multiply-adds on the current
/// target and returns how many binary32 multiply-adds that were.
long run_fma_chains(long rounds);

}  // namespace fp8lab::bench
