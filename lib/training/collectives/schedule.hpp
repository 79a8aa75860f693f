#pragma once
// Collective operations as lists of steps, one list per rank. They define each
// topology for every transport of messages.

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace fp8lab {

/// The order of additions, which decides bits.
enum class Topology : std::uint8_t {
  /// Reduce-scatter and all-gather around a ring, in NCCL's order (*read* in
  /// all_reduce.h): chunk c starts at rank c + 1, each following rank adds what
  /// it received to its own, and rank c adds last and sends the sum on.
  ring,
  /// A binary tree over the ranks, the first of NCCL's two (*read* in trees.cc):
  /// a rank adds its first child's sum to its own and then its second child's;
  /// rank 0 is the root and sends the sum back down. NCCL also runs a second,
  /// mirrored tree on half of the data, with a chain of the GPUs of one node before
  /// it. Neither is modelled.
  tree,
  /// All ranks send to rank 0, which adds in rank order in binary32, rounds once
  /// to the wire's format and sends the sum to all.
  direct,
};
std::string_view to_string(Topology topology);
/// The topology called `name`. Throws `Error`.
Topology find_topology(std::string_view name);

/// Elements [first, first + count).
struct Slice {
  std::size_t first = 0;
  std::size_t count = 0;
};

/// Chunk `chunk` of `elements`, divided into `ranks` chunks of ceil(elements /
/// ranks); the last chunks may be shorter or empty.
Slice chunk_of(std::size_t elements, int ranks, int chunk);

/// One step of a rank.
struct Step {
  enum class Kind : std::uint8_t {
    send,        ///< `slice` to `peer`
    copy,        ///< receive from `peer` into `slice`
    add,         ///< receive from `peer`, reduce into `slice`: a hop
    accumulate,  ///< receive from `peer`, reduce into the rank's binary32 accumulator
    narrow,      ///< round the accumulator into `slice`
  };
  Kind kind = Kind::send;
  int peer = 0;
  Slice slice;
};

/// The steps of one rank, without steps whose slice is empty.
class Schedule {
 public:
  /// Throws `Error` for ranks < 1 and a rank outside of [0, ranks).
  static Schedule all_reduce(Topology topology, int rank, int ranks, std::size_t elements);
  /// Around a ring; rank r starts with chunk r.
  static Schedule all_gather(int rank, int ranks, std::size_t elements);

  [[nodiscard]] std::size_t size() const { return ring_steps_ + steps_.size(); }
  [[nodiscard]] Step operator[](std::size_t index) const;

 private:
  Schedule(int rank, int ranks, std::size_t elements);
  void add_tree();
  void add_direct();

  int rank_;
  int ranks_;
  std::size_t elements_;
  std::size_t ring_steps_ = 0;      // of a ring, computed when asked for: N ranks have N^2 in all
  std::size_t reducing_steps_ = 0;  // the first of them
  std::vector<Step> steps_;         // of other topologies
};

/// The neighbours of a rank in the tree; -1: none.
struct TreeNode {
  int parent = -1;
  int first_child = -1;
  int second_child = -1;
};
TreeNode tree_node(int rank, int ranks);

/// The longest chain of additions for one element of the result, each of which
/// rounds to the wire's format: N - 1 in a ring, about 2 log2 N in the tree, 1
/// for direct.
int longest_chain(Topology topology, int ranks);

}  // namespace fp8lab
