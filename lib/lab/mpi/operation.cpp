#include "lab/mpi/operation.hpp"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <limits>
#include <utility>

#include "fp8lab/core/error.hpp"
#include "lab/mpi/session.hpp"

namespace fp8lab::mpi {
namespace {

thread_local std::uint64_t overflowed = 0;

std::pair<std::span<const std::byte>, std::span<std::byte>> operands(void* in, void* inout,
                                                                     std::size_t bytes) {
  return {{static_cast<const std::byte*>(in), bytes}, {static_cast<std::byte*>(inout), bytes}};
}

/// MPI calls this with elements of the datatype that belongs to the wire.
template <std::size_t kWire>
void sum_elements(void* in, void* inout, int* count, MPI_Datatype*) {
  constexpr const WireFormat& kFormat = kWireFormats[kWire];
  const auto [term, sum] = operands(in, inout, static_cast<std::size_t>(*count) * kFormat.bytes);
  overflowed += add_on_wire(kFormat, term, sum);
}

void max_elements(void* in, void* inout, int* count, MPI_Datatype*) {
  const auto [term, largest] =
      operands(in, inout, static_cast<std::size_t>(*count) * sizeof(float));
  reduce({find_wire_format("f32"), ReduceOp::max}, term, largest);
}

template <std::size_t... kWires>
MPI_User_function* sum_of(FormatId id, std::index_sequence<kWires...>) {
  constexpr std::array<MPI_User_function*, sizeof...(kWires)> kFunctions{sum_elements<kWires>...};
  for (std::size_t i = 0; i < kFunctions.size(); ++i)
    if (kWireFormats[i].format == id) return kFunctions[i];
  throw Error("wire", "a wire format", format(id).name);
}

MPI_User_function* function_of(const Reduction& reduction) {
  if (reduction.op == ReduceOp::max) {
    require(reduction.wire.format == FormatId::f32, "wire", "f32 for max", reduction.wire.name);
    return max_elements;
  }
  return sum_of(reduction.wire.format, std::make_index_sequence<kWireFormats.size()>{});
}

}  // namespace

Operation::Operation(const Reduction& reduction, bool commute) {
  MPI_User_function* const function = function_of(reduction);
  check(MPI_Type_contiguous(static_cast<int>(reduction.wire.bytes), MPI_BYTE, &element_),
        "MPI_Type_contiguous");
  check(MPI_Type_commit(&element_), "MPI_Type_commit");
  check(MPI_Op_create(function, commute ? 1 : 0, &op_), "MPI_Op_create");
}

Operation::~Operation() {
  MPI_Op_free(&op_);
  MPI_Type_free(&element_);
}

std::uint64_t overflowed_so_far() { return overflowed; }

int mpi_count(std::size_t count) {
  constexpr int kMost = std::numeric_limits<int>::max();
  require(count <= static_cast<std::size_t>(kMost), "message", fmt::format("at most {}", kMost),
          fmt::format("{}", count));
  return static_cast<int>(count);
}

}  // namespace fp8lab::mpi
