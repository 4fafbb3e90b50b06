// SPDX-License-Identifier: MIT
// The uses of a file's tensors in libllama's graph of the model, learned from the graph itself. No
// name of a node is known beforehand. Plain values.
#pragma once

#include <ggml.h>
#include <llama.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "core/model_spec.h"
#include "model/gguf_file.h"

namespace moestro {

// The nodes by which libllama's graph chooses experts, found from the chosen ids backwards:
//
//   ids <- the K largest <- [+ selection bias] <- [softmax or sigmoid] <- [+ bias] <- matrix x
//   input
//
// A router of any other form is not found: groups of experts, tables of tokens, other functions,
// quantised matrices.

// Tensors of the model, which outlive a graph.
struct RouterTensors {
  const ggml_tensor* matrix = nullptr;          // [n_embd, n_expert]
  const ggml_tensor* bias = nullptr;            // [n_expert] in F32; null: none
  const ggml_tensor* selection_bias = nullptr;  // nullptr: none
  Gating gating = Gating::kSoftmaxOfChosen;     // function from logits to scores before the choice
};

struct RouterNodes {
  RouterTensors tensors;
  const ggml_tensor* input = nullptr;  // [n_embd, rows] in F32, of the graph
};

// The tensor under all views; `tensor` itself if it is no view.
const ggml_tensor* BaseOf(const ggml_tensor* tensor);

// REQUIRES: the graph that computes `ids` exists.
std::optional<RouterNodes> FindRouter(const ggml_tensor& ids);

// A tensor of the file, at the address where libllama expects it.
struct MappedTensor {
  const TensorInfo* info = nullptr;
  std::byte* data = nullptr;
  // Every node that reads the tensor multiplies rows of floats by the whole matrix.
  bool is_multiplied = false;
};

// A node of a graph: its name, and its number among nodes of this name (from 1 on).
struct NodeName {
  std::string name;
  uint32_t occurrence = 0;
  bool operator==(const NodeName&) const = default;
};

// Matrices of experts for one choice of a router: one group for each tensor of chosen ids, in the
// order in which the ids are computed.
struct ExpertGroup {
  NodeName ids;
  uint32_t n_expert = 0;
  uint32_t n_used = 0;                      // K
  uint32_t n_products = 0;                  // products by chosen ids in a graph
  std::vector<MappedTensor> matrices = {};  // all experts' matrices in a row, each once
  // The router, if it has a known form and its input is still in memory when the ids are computed.
  std::optional<RouterTensors> router = {};
};

struct LearnedGraph {
  std::string first_node;  // the first node of every graph; no other node has this name
  std::vector<ExpertGroup> groups = {};
  std::vector<MappedTensor> dense = {};   // all other tensors in use
  std::vector<MappedTensor> tables = {};  // dense tensors of which a token takes one row
  size_t nodes = 0;                       // of the larger graph
  // The most groups whose experts are in use at a time. The next ids may be computed before the
  // last product of earlier ids.
  uint32_t most_open = 1;
};

// Callbacks while libllama computes a graph. A context keeps one set of callbacks for its life.
struct GraphHooks {
  // Before a node is computed (`asks`): returns whether the graph stops after the node. Called
  // again after the node is computed: returns whether the graph goes on.
  std::function<bool(ggml_tensor* node, bool asks)> on_node = {};
  std::function<bool()> aborts = {};  // before each node; true: the graph ends here

  // For llama_context_params, with the hooks as their data.
  static bool OnNode(ggml_tensor* node, bool asks, void* hooks) {
    const GraphHooks& self = *static_cast<GraphHooks*>(hooks);
    return self.on_node ? self.on_node(node, asks) : !asks;
  }
  static bool Aborts(void* hooks) {
    const GraphHooks& self = *static_cast<GraphHooks*>(hooks);
    return self.aborts && self.aborts();
  }
};

// Lets libllama build the graphs of one row and of several rows, and reads their nodes. No node is
// computed, and the context does not change.
class LearningPass {
 public:
  // The context's hooks; tensors' infos belong to `file`. Both must outlive this.
  LearningPass(const GgufFile& file, GraphHooks& hooks) : file_(file), hooks_(hooks) {}

  // kUnsupported: the graph uses a tensor in a way that cannot be served; the message names the
  // tensor.
  Result<LearnedGraph> Learn(llama_context* context, uint32_t rows);

 private:
  // A tensor that a node reads.
  struct Source {
    const void* tensor = nullptr;      // identifies a tensor within one graph
    const TensorInfo* info = nullptr;  // nullptr: no tensor of the file
    std::byte* data = nullptr;
    bool is_whole = false;  // the tensor itself, not a view
  };
  struct Node {
    NodeName name;
    ggml_op op = GGML_OP_NONE;
    const void* tensor = nullptr;
    std::vector<Source> sources = {};
    uint32_t n_used = 0;                       // for a product by chosen ids
    std::optional<RouterTensors> router = {};  // of the ids
    bool has_float_rows = false;  // for products: activations and result are rows of floats
  };
  // The uses of a tensor of the file.
  struct Uses {
    MappedTensor tensor;
    bool in_products = false;
    bool as_table = false;
    bool otherwise = false;
    bool in_other_than_dense_products = false;
  };
  Source SourceOf(const ggml_tensor* tensor) const;
  std::optional<RouterTensors> RouterOf(const ggml_tensor& product) const;
  void See(const ggml_tensor* node);
  Status Build(llama_context* context, uint32_t rows);
  void CountUses();
  bool is_streamed(const Source& source) const;
  Result<std::vector<ExpertGroup>> GroupsOfGraph(uint32_t& most_open) const;
  Result<std::string> FirstNode() const;

  const GgufFile& file_;
  GraphHooks& hooks_;
  std::vector<Node> nodes_;  // nodes of the last graph
  std::map<std::string, uint32_t> occurrences_;
  std::map<const TensorInfo*, Uses> uses_;  // uses in all graphs
};

}  // namespace moestro
