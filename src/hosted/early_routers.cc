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

// The first router of a known form says what the matrix of all has to be.
std::optional<LookAheadRouters::Shape> RoutersOf(const LearnedGraph& graph) {
  for (const ExpertGroup& group : graph.groups) {
    if (!group.router) continue;
    return LookAheadRouters::Shape{.n_embd = group.router->matrix->ne[0],
                                   .n_expert = group.router->matrix->ne[1],
                                   .layers = static_cast<uint32_t>(graph.groups.size())};
  }
  return std::nullopt;
}

bool Fits(const ExpertGroup& group, const LookAheadRouters::Shape& shape) {
  return group.router && group.router->matrix->ne[0] == shape.n_embd &&
         group.router->matrix->ne[1] == shape.n_expert;
}

std::span<const float> RowOf(const ggml_tensor* row) {
  if (row == nullptr) return {};
  return {static_cast<const float*>(row->data), static_cast<size_t>(row->ne[0])};
}

}  // namespace

uint32_t EarlyRouters::MostAhead(const LearnedGraph& graph) {
  const auto shape = RoutersOf(graph);
  if (!shape) return 0;
  uint32_t most = 0;
  uint32_t in_a_row = 0;
  for (const ExpertGroup& group : graph.groups) {
    in_a_row = Fits(group, *shape) ? in_a_row + 1 : 0;
    most = std::max(most, in_a_row);
  }
  return most > 0 ? most - 1 : 0;
}

uint64_t EarlyRouters::BytesFor(const LearnedGraph& graph) {
  return MostAhead(graph) > 0 ? LookAheadRouters::BytesFor(*RoutersOf(graph)) : 0;
}

EarlyRouters::EarlyRouters(const LearnedGraph& graph, CpuDevice& cpu, LookAheadRouters routers)
    : graph_(&graph), routers_(std::move(routers)), arena_(cpu.backend(), kNodes) {}

Result<EarlyRouters> EarlyRouters::Create(const LearnedGraph& graph, CpuDevice& cpu) {
  CHECK(MostAhead(graph) > 0);
  const LookAheadRouters::Shape shape = *RoutersOf(graph);
  TRY(LookAheadRouters routers, LookAheadRouters::Allocate(shape));
  std::vector<const ggml_tensor*> matrices;
  for (const ExpertGroup& group : graph.groups) {
    matrices.push_back(Fits(group, shape) ? group.router->matrix : nullptr);
  }
  TRY_STATUS(routers.Fill(matrices));
  return EarlyRouters(graph, cpu, std::move(routers));
}

uint32_t EarlyRouters::Ahead(uint32_t group, uint32_t layers) const {
  const std::vector<ExpertGroup>& groups = graph_->groups;
  const LookAheadRouters::Shape shape = *RoutersOf(*graph_);
  if (!Fits(groups[group], shape)) return 0;
  uint32_t ahead = 0;
  for (uint32_t g = group + 1; g < groups.size() && ahead < layers; ++g, ++ahead) {
    if (!Fits(groups[g], shape) || groups[g].n_used != groups[group].n_used) break;
  }
  return ahead;
}

Result<RoutedAhead> EarlyRouters::Choose(uint32_t group, const ggml_tensor& ids, uint32_t layers) {
  RoutedAhead ahead;
  const uint32_t distances = Ahead(group, layers);
  if (distances == 0) return ahead;
  const std::optional<RouterNodes> nodes = FindRouter(ids);
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
