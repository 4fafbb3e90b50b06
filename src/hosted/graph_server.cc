// SPDX-License-Identifier: MIT
#include "hosted/graph_server.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "base/result.h"
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

GraphServer::GraphServer(const Products& products, StepFrame& frame, GraphHooks& hooks)
    : products_(products), frame_(frame), hooks_(hooks), groups_(products.graph.groups.size()) {
  for (uint32_t g = 0; g < products_.graph.groups.size(); ++g) {
    const ExpertGroup& group = products_.graph.groups[g];
    std::vector<uint32_t>& turns = groups_of_[group.ids.name];
    turns.resize(std::max<size_t>(turns.size(), group.ids.occurrence), UINT32_MAX);
    turns[group.ids.occurrence - 1] = g;
  }
  hooks_.on_node = [this](ggml_tensor* node, bool asks) { return OnNode(*node, asks); };
  hooks_.aborts = [this] { return error_.has_value() || frame_.state().stop.is_requested(); };
  if (products_.kernels == nullptr) return;
  products_.kernels->SetReads({.advance = [this] { Advance(); },
                               .is_ended = [this] { return is_ended(); },
                               .wait_briefly = [this] { WaitBriefly(); }});
}

void GraphServer::Begin(const Rows& rows) {
  kinds_.assign(rows.kinds.begin(), rows.kinds.end());
  kinds_of_outputs_.assign(rows.kinds_of_outputs.begin(), rows.kinds_of_outputs.end());
  look_ahead_ = rows.look_ahead;
  error_.reset();
  BeginGraph();
}

void GraphServer::BeginGraph() {
  for (uint32_t g = 0; g < groups_.size(); ++g) {
    EndLeases(g);
    groups_[g].is_served = false;
    groups_[g].products_left = products_.graph.groups[g].n_products;
  }
  seen_.clear();
  awaited_.reset();
}

Status GraphServer::Decode(const LlamaRows& rows, llama_context* context) {
  const Result<int32_t> code = rows.Decode(context);
  const Status served = End();
  if (!code) return std::unexpected(code.error());
  TRY_STATUS(served);
  if (*code == 1) return Fail(Errc::kInvalidRequest, "libllama finds no room in the KV cache");
  if (*code == 0) return {};
  return Fail(Errc::kUnsupported, "libllama cannot compute these rows (code {})", *code);
}

// The graphs have ended. Returns their error, for any result of llama_decode().
Status GraphServer::End() {
  const bool all_served = std::ranges::all_of(groups_, &Group::is_served);
  BeginGraph();
  if (error_) return std::unexpected(*std::exchange(error_, std::nullopt));
  if (frame_.state().stop.is_requested()) return Fail(Errc::kInterrupted, "stopped on request");
  if (!all_served) {
    return Fail(Errc::kUnsupported, "libllama left out a choice of experts that it made before");
  }
  return {};
}

bool GraphServer::OnNode(ggml_tensor& node, bool asks) {
  if (asks) return Ask(node);
  if (!awaited_ || awaited_->first != &node) return !error_;
  const uint32_t group = std::exchange(awaited_, std::nullopt)->second;
  const Status served = Serve(group, node);
  if (!served && !error_) error_ = served.error();
  return served.has_value();
}

bool GraphServer::Ask(ggml_tensor& node) {
  if (error_) return false;
  if (products_.graph.first_node == node.name) BeginGraph();
  if (products_.tables != nullptr) products_.tables->Expect(node);
  if (const Status led = Lead(node); !led) {
    error_ = led.error();
    return false;
  }
  const auto turns = groups_of_.find(std::string_view(node.name));
  if (turns == groups_of_.end()) return false;
  const size_t turn = seen_[turns->first]++;
  const bool is_ids = turn < turns->second.size() && turns->second[turn] != UINT32_MAX;
  if (!is_ids) return false;  // another node of this name
  awaited_ = {&node, turns->second[turn]};
  return true;
}

// A graph that is computed again has our operations in it.
Status GraphServer::Lead(ggml_tensor& node) {
  if (node.op == GGML_OP_MUL_MAT_ID) return LeadProduct(node);
  if (node.op == GGML_OP_CUSTOM && node.src[0] != nullptr) return LeadProduct(node);
  return products_.kernels != nullptr ? products_.kernels->ReplaceDense(node) : Status();
}

Status GraphServer::LeadProduct(ggml_tensor& product) {
  const std::optional<SlotProducts::Product> which = products_.slots.Find(product);
  if (!which) return {};  // the matrices are resident
  Group& group = groups_[which->group];
  if (!group.is_served || group.products_left == 0) {
    return Fail(Errc::kUnsupported,
                "{}: libllama multiplies by experts that it has not chosen in this graph",
                static_cast<const char*>(product.src[0]->name));
  }
  --group.products_left;
  if (group.leases.size() == 0) return {};
  if (is_ours(which->group)) {
    return products_.kernels->Replace(product, which->group, which->matrix);
  }
  products_.slots.Redirect(product, *which);
  return {};
}

// Ends the leases of groups whose products are all computed: libllama has computed every earlier
// product by the time it stops for the next ids.
void GraphServer::EndGroups() {
  for (uint32_t g = 0; g < groups_.size(); ++g) {
    if (groups_[g].is_served && groups_[g].products_left == 0) EndLeases(g);
  }
}

void GraphServer::EndLeases(uint32_t group) {
  if (groups_[group].leases.size() == 0) return;
  groups_[group].leases = {};
  if (is_ours(group)) products_.kernels->Forget(group);
}

std::span<const RowKind> GraphServer::KindsOf(uint32_t rows) const {
  return rows == kinds_.size() ? std::span(kinds_) : std::span(kinds_of_outputs_);
}

Result<Routing> GraphServer::RoutingOf(uint32_t group, const ggml_tensor& ids) const {
  const ExpertGroup& its = products_.graph.groups[group];
  const auto rows = static_cast<uint32_t>(ids.ne[1]);
  const bool is_known = ids.type == GGML_TYPE_I32 && ids.ne[0] == its.n_used && ids.ne[2] == 1 &&
                        ids.ne[3] == 1 && ids.nb[0] == sizeof(int32_t);
  if (!is_known || KindsOf(rows).size() != rows) {
    return Fail(Errc::kUnsupported, "{}: the chosen experts have not the shape that was learned",
                static_cast<const char*>(ids.name));
  }
  Routing routing{.n_tokens = rows, .n_used = its.n_used, .experts = {}, .weights = {}};
  const auto* const bytes = static_cast<const std::byte*>(ids.data);
  for (uint32_t row = 0; row < rows; ++row) {
    for (uint32_t k = 0; k < its.n_used; ++k) {
      int32_t expert = 0;
      std::memcpy(&expert, bytes + row * ids.nb[1] + k * sizeof(int32_t), sizeof(expert));
      if (expert < 0 || static_cast<uint32_t>(expert) >= its.n_expert) {
        return Fail(Errc::kInvalidFile, "{}: expert {} was chosen of {}; the weights are damaged",
                    static_cast<const char*>(ids.name), expert, its.n_expert);
      }
      routing.experts.push_back({static_cast<uint16_t>(expert)});
    }
  }
  // libllama computes the weights later.
  routing.weights.assign(routing.experts.size(), 1.0F / static_cast<float>(its.n_used));
  return routing;
}

Status GraphServer::Serve(uint32_t group, const ggml_tensor& ids) {
  frame_.residency().Pump();  // takes the reads that have landed
  EndGroups();
  TRY_STATUS(frame_.LookAtFiles());
  Group& its = groups_[group];
  its.is_served = true;
  if (ids.ne[1] == 0) return {};  // the last layers have no row with logits
  TRY(Routing routing, RoutingOf(group, ids));
  const std::span<const RowKind> kinds = KindsOf(routing.n_tokens);
  const ExpertLayerId layer{static_cast<uint16_t>(group)};
  TRY(const RoutedAhead ahead, LookAhead(group, ids));
  if (frame_.state().watchers.route) {
    frame_.state().watchers.route({layer, routing, kinds, ahead.experts, ahead.weights, false});
  }
  const LayerPlan plan = frame_.decisions().protocol().AfterRouting(
      {layer, routing, kinds, ahead.experts, ahead.weights});
  its.leases = LeaseStream(frame_.residency(), plan);  // absent experts start to be read
  its.leases.Advance();
  frame_.decisions().protocol().Prefetch();  // reads of later layers' experts go behind these
  if (is_ours(group)) {
    TRY_STATUS(WaitFor(its.leases, Until::kTaken));
    products_.kernels->Choose(group, routing, its.leases);
  } else {
    TRY_STATUS(WaitFor(its.leases, Until::kComplete));
    products_.slots.Choose(group, ids, routing, its.leases);
  }
  if (frame_.state().watchers.plan) frame_.state().watchers.plan(plan);
  return {};
}

Result<RoutedAhead> GraphServer::LookAhead(uint32_t group, const ggml_tensor& ids) {
  if (products_.early == nullptr || look_ahead_ == 0) return RoutedAhead();
  const double start = frame_.now();
  Result<RoutedAhead> ahead = products_.early->Choose(group, ids, look_ahead_);
  look_ahead_seconds_ += frame_.now() - start;
  return ahead;
}

// Within an operation no exception may leave: ggml's threads are C. Without memory for even the
// error the process ends.
template <class Work>
void GraphServer::Guard(Work&& work) {
  const std::string thrown = Caught(
      [&] {
        work();
        return std::string();
      },
      [](std::string_view why) { return std::string(why); });
  if (!thrown.empty() && !error_) error_ = Error{.code = Errc::kNoMemory, .message = thrown};
}

void GraphServer::Advance() {
  Guard([this] { frame_.residency().Pump(); });
}

// Errors of reads end the graph, and so do requests to stop.
bool GraphServer::is_ended() {
  Guard([this] {
    if (auto error = frame_.residency().TakeError(); error && !error_) error_ = std::move(error);
  });
  return error_.has_value() || frame_.state().stop.is_requested();
}

// REQUIRES: some lease is not complete.
void GraphServer::WaitBriefly() {
  Guard([this] {
    const double start = frame_.now();
    if (frame_.residency().idle() && !error_) {
      error_ = Error{.code = Errc::kIo, .message = "the read of an expert was given up"};
    }
    frame_.residency().WaitBriefly();
    wait_seconds_ += frame_.now() - start;
  });
}

Status GraphServer::WaitFor(LeaseStream& leases, Until until) {
  const auto is_missing = [&] {
    if (!leases.all_taken()) return true;
    if (until == Until::kTaken) return false;
    for (size_t i = 0; i < leases.size(); ++i) {
      if (!leases.lease(i)->is_complete()) return true;
    }
    return false;
  };
  while (is_missing()) {
    if (is_ended()) {
      if (error_) return std::unexpected(*error_);
      return Fail(Errc::kInterrupted, "stopped on request");
    }
    if (frame_.residency().idle() && !leases.all_taken()) {
      return Fail(Errc::kNoMemory, "a layer's experts have no room together; raise --ram");
    }
    WaitBriefly();
    leases.Advance();
  }
  return {};
}

}  // namespace moestro
