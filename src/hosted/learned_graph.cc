// SPDX-License-Identifier: MIT
#include "hosted/learned_graph.h"

#include <algorithm>
#include <utility>

#include "hosted/llama_rows.h"

namespace moestro {
namespace {

bool IsOfModel(const ggml_tensor* tensor) {
  return tensor != nullptr && tensor->op == GGML_OP_NONE && tensor->view_src == nullptr;
}

bool IsMove(const ggml_tensor& node) {
  return node.op == GGML_OP_VIEW || node.op == GGML_OP_RESHAPE || node.op == GGML_OP_CONT;
}

// A node's sum of a row of the model and another source.
struct Sum {
  const ggml_tensor* row = nullptr;
  const ggml_tensor* other = nullptr;
};

std::optional<Sum> SumOf(const ggml_tensor& node) {
  if (node.op != GGML_OP_ADD) return std::nullopt;
  const ggml_tensor* const row = node.src[1];
  const bool is_row = IsOfModel(row) && row->type == GGML_TYPE_F32 && row->ne[0] == node.ne[0] &&
                      ggml_nelements(row) == row->ne[0];
  if (!is_row) return std::nullopt;
  return Sum{.row = row, .other = node.src[0]};
}

std::optional<Gating> GatingOf(const ggml_tensor& node) {
  if (node.op == GGML_OP_SOFT_MAX && node.src[1] == nullptr) return Gating::kSoftmax;
  if (node.op == GGML_OP_UNARY && ggml_get_unary_op(&node) == GGML_UNARY_OP_SIGMOID) {
    return Gating::kSigmoid;
  }
  return std::nullopt;
}

const ggml_tensor* SkipMoves(const ggml_tensor* tensor) {
  while (tensor != nullptr && IsMove(*tensor)) tensor = tensor->src[0];
  return tensor;
}

// Takes a sum away from the end of the chain.
const ggml_tensor* TakeSum(const ggml_tensor*& at) {
  at = SkipMoves(at);
  const std::optional<Sum> sum = at != nullptr ? SumOf(*at) : std::nullopt;
  if (!sum) return nullptr;
  at = SkipMoves(sum->other);
  return sum->row;
}

}  // namespace

const ggml_tensor* BaseOf(const ggml_tensor* tensor) {
  while (tensor->view_src != nullptr) tensor = tensor->view_src;
  return tensor;
}

std::optional<RouterNodes> FindRouter(const ggml_tensor& ids) {
  const ggml_tensor* at = SkipMoves(&ids);
  if (at == nullptr || (at->op != GGML_OP_ARGSORT && at->op != GGML_OP_TOP_K)) return std::nullopt;
  at = at->src[0];
  RouterNodes found;
  RouterTensors& its = found.tensors;
  its.selection_bias = TakeSum(at);
  if (at == nullptr) return std::nullopt;
  if (const std::optional<Gating> gating = GatingOf(*at)) {
    its.gating = *gating;
    at = at->src[0];
    its.bias = TakeSum(at);
  } else {
    its.bias = TakeSum(at);
  }
  if (at == nullptr || at->op != GGML_OP_MUL_MAT || !IsOfModel(at->src[0])) return std::nullopt;
  its.matrix = at->src[0];
  found.input = at->src[1];
  const bool is_plain = ggml_is_matrix(its.matrix) && ggml_is_contiguous(its.matrix) &&
                        !ggml_is_quantized(its.matrix->type) &&
                        found.input->type == GGML_TYPE_F32 && ggml_is_contiguous(found.input);
  if (!is_plain) return std::nullopt;
  return found;
}

namespace {

// Whether graphs of different numbers of rows choose the same experts for the same products.
bool IsAlike(const ExpertGroup& a, const ExpertGroup& b) {
  return a.ids == b.ids && a.n_expert == b.n_expert && a.n_used == b.n_used &&
         a.n_products == b.n_products &&
         std::ranges::equal(a.matrices, b.matrices, {}, &MappedTensor::info, &MappedTensor::info);
}

}  // namespace

// Two conditions: the product reads the router's input, too, so that the input is still in memory
// when the ids are computed; and the router's tensors are the file's, which outlive the graph.
std::optional<RouterTensors> LearningPass::RouterOf(const ggml_tensor& product) const {
  const std::optional<RouterNodes> nodes = FindRouter(*product.src[2]);
  if (!nodes || BaseOf(nodes->input) != BaseOf(product.src[1])) return std::nullopt;
  const RouterTensors& router = nodes->tensors;
  for (const ggml_tensor* tensor : {router.matrix, router.bias, router.selection_bias}) {
    if (tensor != nullptr && SourceOf(tensor).info == nullptr) return std::nullopt;
  }
  return router;
}

LearningPass::Source LearningPass::SourceOf(const ggml_tensor* tensor) const {
  const ggml_tensor* const base = BaseOf(tensor);
  const TensorInfo* const info = base->op == GGML_OP_NONE ? file_.Find(base->name) : nullptr;
  return {.tensor = tensor,
          .info = info,
          .data = static_cast<std::byte*>(base->data),
          .is_whole = base == tensor};
}

void LearningPass::See(const ggml_tensor* node) {
  Node seen{.name = {.name = node->name, .occurrence = ++occurrences_[node->name]},
            .op = node->op,
            .tensor = node};
  for (const ggml_tensor* source : node->src) {
    if (source != nullptr) seen.sources.push_back(SourceOf(source));
  }
  if (node->op == GGML_OP_MUL_MAT_ID) {
    seen.n_used = static_cast<uint32_t>(node->src[2]->ne[0]);
    seen.router = RouterOf(*node);
  }
  if (node->op == GGML_OP_MUL_MAT) {
    const ggml_tensor& x = *node->src[1];
    seen.has_float_rows =
        x.type == GGML_TYPE_F32 && x.nb[0] == sizeof(float) && node->type == GGML_TYPE_F32;
  }
  nodes_.push_back(std::move(seen));
}

// Builds a graph without computing it: libllama passes all nodes to the hook before the first one
// is computed; then the graph is aborted.
Status LearningPass::Build(llama_context* context, uint32_t rows) {
  nodes_.clear();
  occurrences_.clear();
  hooks_ = {.on_node =
                [this](const ggml_tensor* node, bool asks) {
                  if (asks) See(node);
                  return false;
                },
            .aborts = [] { return true; }};
  LlamaRows batch(rows);
  for (uint32_t i = 0; i < rows; ++i) batch.Add(0, i, 0, i + 1 == rows);
  const Result<int32_t> code = batch.Decode(context);
  hooks_ = {};
  // No cell was written, so the data may stay. A model for embeddings may have no cells.
  if (const llama_memory_t memory = llama_get_memory(context)) llama_memory_clear(memory, false);
  if (!code) return std::unexpected(code.error());
  if (nodes_.empty()) {
    return Fail(Errc::kUnsupported, "libllama builds no graph of this model (code {})", *code);
  }
  return {};
}

void LearningPass::CountUses() {
  for (const Node& node : nodes_) {
    for (size_t i = 0; i < node.sources.size(); ++i) {
      const Source& source = node.sources[i];
      if (source.info == nullptr) continue;
      Uses& uses = uses_[source.info];
      uses.tensor.info = source.info;
      uses.tensor.data = source.data;
      const bool is_product = node.op == GGML_OP_MUL_MAT_ID && i == 0 && source.is_whole &&
                              source.info->ne[2] > 1 && source.info->ne[3] == 1;
      const bool is_table = node.op == GGML_OP_GET_ROWS && i == 0 && source.is_whole;
      const bool is_dense_product = node.has_float_rows && i == 0 && source.is_whole &&
                                    source.info->ne[2] == 1 && source.info->ne[3] == 1;
      uses.in_products = uses.in_products || is_product;
      uses.as_table = uses.as_table || is_table;
      uses.otherwise = uses.otherwise || (!is_product && !is_table);
      uses.in_other_than_dense_products = uses.in_other_than_dense_products || !is_dense_product;
    }
  }
}

bool LearningPass::is_streamed(const Source& source) const {
  const auto uses = uses_.find(source.info);
  return uses != uses_.end() && uses->second.in_products && !uses->second.as_table &&
         !uses->second.otherwise;
}

Result<std::vector<ExpertGroup>> LearningPass::GroupsOfGraph(uint32_t& most_open) const {
  struct Found {
    ExpertGroup group;
    size_t at = 0;    // place of the ids
    size_t last = 0;  // place of the last product
  };
  std::vector<Found> found;
  for (size_t n = 0; n < nodes_.size(); ++n) {
    const Node& node = nodes_[n];
    if (node.op != GGML_OP_MUL_MAT_ID || !is_streamed(node.sources[0])) continue;
    const auto ids = std::ranges::find(nodes_, node.sources[2].tensor, &Node::tensor);
    const std::string& tensor = node.sources[0].info->name;
    if (ids == nodes_.end()) {
      return Fail(Errc::kUnsupported,
                  "{}: its experts are chosen by values that no node of the graph computes",
                  tensor);
    }
    auto group = std::ranges::find(found, ids->name, [](const Found& f) { return f.group.ids; });
    if (group == found.end()) {
      const auto n_expert = static_cast<uint32_t>(node.sources[0].info->ne[2]);
      found.push_back({.group = {.ids = ids->name,
                                 .n_expert = n_expert,
                                 .n_used = node.n_used,
                                 .router = node.router},
                       .at = static_cast<size_t>(ids - nodes_.begin())});
      group = found.end() - 1;
    }
    if (group->group.n_expert != static_cast<uint32_t>(node.sources[0].info->ne[2])) {
      return Fail(Errc::kUnsupported, "{} has another number of experts than its neighbours",
                  tensor);
    }
    ++group->group.n_products;
    group->last = n;
    const MappedTensor matrix{.info = node.sources[0].info, .data = node.sources[0].data};
    if (!std::ranges::contains(group->group.matrices, matrix.info, &MappedTensor::info)) {
      group->group.matrices.push_back(matrix);
    }
  }
  std::ranges::sort(found, {}, &Found::at);
  std::vector<ExpertGroup> groups;
  for (const Found& opens : found) {
    const auto is_open = [&](const Found& f) { return f.at <= opens.at && f.last > opens.at; };
    most_open = std::max(most_open, static_cast<uint32_t>(std::ranges::count_if(found, is_open)));
    groups.push_back(opens.group);
  }
  return groups;
}

Result<std::string> LearningPass::FirstNode() const {
  for (const Node& node : nodes_) {
    if (occurrences_.at(node.name.name) == 1 && !node.name.name.empty()) return node.name.name;
    if (node.op == GGML_OP_MUL_MAT_ID) break;
  }
  return Fail(Errc::kUnsupported, "no node of its own name begins the graph");
}

Result<LearnedGraph> LearningPass::Learn(llama_context* context, uint32_t rows) {
  TRY_STATUS(Build(context, 1));
  CountUses();
  TRY_STATUS(Build(context, rows));
  CountUses();
  LearnedGraph learned;
  learned.nodes = nodes_.size();
  TRY(learned.first_node, FirstNode());
  TRY(learned.groups, GroupsOfGraph(learned.most_open));
  TRY_STATUS(Build(context, 1));
  TRY(const std::string first, FirstNode());
  TRY(const std::vector<ExpertGroup> groups, GroupsOfGraph(learned.most_open));
  const bool is_same =
      first == learned.first_node && std::ranges::equal(groups, learned.groups, IsAlike);
  if (!is_same) {
    return Fail(Errc::kUnsupported, "libllama chooses experts otherwise for one row than for {}",
                rows);
  }
  for (const auto& [info, uses] : uses_) {
    if (uses.in_products && !uses.as_table && !uses.otherwise) {
      const auto has_it = [&](const ExpertGroup& group) {
        return std::ranges::contains(group.matrices, info, &MappedTensor::info);
      };
      if (std::ranges::count_if(learned.groups, has_it) != 1) {
        return Fail(Errc::kUnsupported, "{} serves several choices of experts", info->name);
      }
      continue;
    }
    const bool is_table = uses.as_table && !uses.in_products && !uses.otherwise;
    MappedTensor tensor = uses.tensor;
    tensor.is_multiplied = !uses.in_other_than_dense_products;
    (is_table ? learned.tables : learned.dense).push_back(tensor);
  }
  return learned;
}

}  // namespace moestro
