// SPDX-License-Identifier: MIT
#include "hosted/early_routers.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "base/check.h"
#include "decide/layer/router.h"

namespace moestro {
namespace {

// The input, and a router and a product for each of eight distances.
constexpr size_t kNodes = 32;

// nullopt: a router has no known form, or another form than the others.
std::optional<LookAheadRouters::Shape> RoutersOf(const LearnedGraph& graph) {
  std::optional<LookAheadRouters::Shape> shape;
  for (const ExpertGroup& group : graph.groups) {
    if (!group.router || group.n_used != graph.groups.front().n_used) return std::nullopt;
    const ggml_tensor& matrix = *group.router->matrix;
    if (!shape) {
      shape = {.n_embd = matrix.ne[0],
               .n_expert = matrix.ne[1],
               .layers = static_cast<uint32_t>(graph.groups.size())};
    }
    const bool is_alike = matrix.ne[0] == shape->n_embd && matrix.ne[1] == shape->n_expert &&
                          matrix.ne[1] == group.n_expert;
    if (!is_alike) return std::nullopt;
  }
  return shape;
}

std::span<const float> RowOf(const ggml_tensor* row) {
  if (row == nullptr) return {};
  return {static_cast<const float*>(row->data), static_cast<size_t>(row->ne[0])};
}

}  // namespace

uint32_t EarlyRouters::MostAhead(const LearnedGraph& graph) {
  return RoutersOf(graph) ? static_cast<uint32_t>(graph.groups.size()) - 1 : 0;
}

uint64_t EarlyRouters::BytesFor(const LearnedGraph& graph) {
  return MostAhead(graph) > 0 ? LookAheadRouters::BytesFor(*RoutersOf(graph)) : 0;
}

EarlyRouters::EarlyRouters(const LearnedGraph& graph, CpuDevice& cpu, LookAheadRouters routers)
    : graph_(&graph), routers_(std::move(routers)), arena_(cpu.backend(), kNodes) {}

Result<EarlyRouters> EarlyRouters::Create(const LearnedGraph& graph, CpuDevice& cpu) {
  CHECK(MostAhead(graph) > 0);
  TRY(LookAheadRouters routers, LookAheadRouters::Allocate(*RoutersOf(graph)));
  std::vector<const ggml_tensor*> matrices;
  for (const ExpertGroup& group : graph.groups) matrices.push_back(group.router->matrix);
  TRY_STATUS(routers.Fill(matrices));
  return EarlyRouters(graph, cpu, std::move(routers));
}

Result<RoutedAhead> EarlyRouters::Choose(uint32_t group, const ggml_tensor& ids, uint32_t layers) {
  RoutedAhead ahead;
  const auto later = static_cast<uint32_t>(graph_->groups.size()) - 1 - group;
  const uint32_t distances = std::min(layers, later);
  if (distances == 0) return ahead;
  const std::optional<RouterNodes> nodes = FindRouter(ids);
  // A prediction is no reason to end a step that libllama can compute.
  if (!nodes || ggml_nrows(nodes->input) != ids.ne[1]) return ahead;
  // input [n_embd, rows], one router [n_embd, n_expert] for each distance -> logits [n_expert,
  // rows]
  ggml_context* const context = arena_.Begin();
  const ggml_tensor& input = *nodes->input;
  ggml_tensor* const x = ggml_new_tensor_2d(context, GGML_TYPE_F32, input.ne[0], ids.ne[1]);
  x->data = input.data;
  x->buffer = input.buffer;
  std::vector<ggml_tensor*> products;
  for (uint32_t d = 0; d < distances; ++d) {
    products.push_back(ggml_mul_mat(context, routers_.Stack(context, group + 1 + d, 1), x));
    ggml_set_output(products.back());
    ggml_build_forward_expand(arena_.graph(), products.back());
  }
  TRY_STATUS(arena_.Run());
  for (uint32_t d = 0; d < distances; ++d) {
    const auto* const logits = static_cast<const float*>(products[d]->data);
    logits_.assign(logits, logits + ggml_nelements(products[d]));
    Choose(group + 1 + d, logits_, ahead);
  }
  return ahead;
}

void EarlyRouters::Choose(uint32_t group, std::span<float> logits, RoutedAhead& ahead) const {
  const ExpertGroup& its = graph_->groups[group];
  const RouterTensors& router = *its.router;
  const std::span<const float> bias = RowOf(router.bias);
  for (size_t i = 0; i < logits.size() && !bias.empty(); ++i) logits[i] += bias[i % bias.size()];
  const RouterSpec spec{.n_expert = its.n_expert, .n_used = its.n_used, .gating = router.gating};
  const Routing routing = Route(spec, logits, RowOf(router.selection_bias));
  ahead.experts.append_range(routing.experts);
  ahead.weights.append_range(routing.weights);
}

}  // namespace moestro
