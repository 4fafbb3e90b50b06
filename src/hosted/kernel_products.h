// SPDX-License-Identifier: MIT
// Lets our own kernels compute products of quantised matrices in libllama's graph. A node of the
// graph becomes an operation of ours with the same sources and the same result:
//
//   GGML_OP_MUL_MAT     a matrix [n_in, n_out], x [n_in, rows..]
//                       -> [n_out, rows..]
//   GGML_OP_MUL_MAT_ID  matrices of chosen experts, x [n_in, 1 or K, tokens]
//                       -> [n_out, K, tokens]
//
// The kernels read interleaved rows of dense matrices, and experts in their slots. A row of
// activations has the same product whatever rows are beside it.
//
// Experts may land during an operation: each operation computes experts in their order, and the
// operation's first thread, which is the engine thread, moves the reads forward in between.
//
// Thread rule: the engine thread; the operations themselves run on ggml's threads.
#pragma once

#include <ggml.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "compute/expert_kernel.h"
#include "core/batch.h"
#include "hosted/learned_graph.h"
#include "residency/leases.h"

namespace moestro {

class KernelProducts {
 public:
  // Called by the engine thread within an operation.
  struct Reads {
    std::function<void()> advance;       // moves reads forward; never waits
    std::function<bool()> is_ended;      // nothing more is to be computed
    std::function<void()> wait_briefly;  // until a read finishes, or a little while
  };
  // For graphs that `threads` threads compute. The graph must outlive this. libllama's context
  // computes nothing after this is gone.
  KernelProducts(const LearnedGraph& graph, uint32_t threads);
  // Before the first operation runs.
  void SetReads(Reads reads);
  ~KernelProducts();
  KernelProducts(const KernelProducts&) = delete;
  KernelProducts& operator=(const KernelProducts&) = delete;

  // Lays out in place each dense matrix that our kernels multiply, in the order that the kernels
  // read fastest: part `part` of `parts` of the work; threads may each do a part. REQUIRES: the
  // matrices are in memory as in the file; all parts are done once, before the first product.
  void LayOutDense(size_t part, size_t parts);
  // Whether all of a group's matrices have a kernel of ours.
  bool has(uint32_t group) const { return !groups_[group].empty(); }
  // Sets the choice that the group's next products follow. REQUIRES: has(group); `leases` has every
  // chosen expert, complete or in reading, until the last of the products is computed.
  void Choose(uint32_t group, const Routing& routing, const LeaseStream& leases);
  // The leases of the group's choice end: until the next choice the group's products compute
  // nothing. A graph that is computed again still holds these products.
  void Forget(uint32_t group);
  // Makes an expert's product ours. REQUIRES: the choice is made. kUnsupported: see ReplaceDense().
  Status Replace(ggml_tensor& product, uint32_t group, uint32_t matrix);
  // Makes a dense matrix's product ours; does nothing for nodes that read none of our matrices.
  // kUnsupported: a matrix of ours is used otherwise than was learned.
  Status ReplaceDense(ggml_tensor& node);

 private:
  struct Job;
  struct Scratch;
  const ExpertKernel* KernelFor(int type);
  Status CheckOther(const ggml_tensor& node) const;
  static void Run(ggml_tensor* result, int thread, int n_threads, void* userdata);
  void Become(ggml_tensor& node, Job& job) const;

  const LearnedGraph& graph_;
  std::unique_ptr<Scratch> scratch_;
  std::map<int, std::optional<ExpertKernel>> kernels_;  // by type; nullopt: none of ours
  std::deque<Job> jobs_;
  std::vector<std::vector<Job*>> groups_;        // [group][matrix]
  std::unordered_map<const void*, Job*> dense_;  // by address
};

}  // namespace moestro
