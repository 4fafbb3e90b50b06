// SPDX-License-Identifier: MIT
// The composition root: puts the parts together.
#include "native/engine_parts.h"

#include <algorithm>
#include <utility>

#include "base/terminal.h"
#include "base/text.h"
#include "devices/local_transport.h"
#include "learned/kept_facts.h"
#include "native/catalog.h"
#include "native/make_slots.h"
#include "native/plan/engine_plan.h"

namespace moestro {
namespace {

uint32_t CapacityOf(const OpenedModel& opened) {
  const uint32_t capacity = opened.options.capacity;
  return capacity == kConfigCapacity ? opened.model.spec.encoder->capacity : capacity;
}

// Bytes that drafting a token reads. REQUIRES: the model predicts.
uint64_t PredictingBytes(const ModelFile& model, const ExpertCatalog& catalog) {
  uint64_t bytes = model.weights.output->extent.length;
  ForEachLayerRole(
      [&](const TensorRole&, const TensorInfo* tensor) {
        if (tensor != nullptr) bytes += tensor->extent.length;
      },
      model.weights.layers.back());
  const auto last = static_cast<uint16_t>(model.spec.n_layer() - 1);
  if (!model.spec.has_experts(last)) return bytes;
  const ExpertKey key{.layer = model.spec.expert_layer(LayerId{last}), .expert = {}};
  return bytes + model.spec.router.n_used * BytesOf(catalog, key);
}

}  // namespace

Status NativeEngine::Running::Start(const EngineOptions& options, Lasting& lasting) {
  TRY_STATUS(Allocate(options, lasting));
  return Load(lasting);
}

// Allocates the parts whose sizes do not depend on the number of slots. A chunk whose buffers take
// much of a small budget is halved: prompts are then read in more passes, and the text is the same.
Status NativeEngine::Running::AllocateFixed(const EngineOptions& options, Lasting& lasting) {
  EngineOptions chosen = options;
  while (true) {
    TRY(opened, OpenedModel::Open(lasting.model, chosen));
    if (options.threads == 0 && DeviceSetup::UsesGpu(options)) {
      opened->cpu->SetThreads(ThreadsBesideDriver(opened->cpu->threads()));
    }
    TRY(team, Team::Create(*opened->cpu));
    // Numa begins before memory is touched.
    TRY(numa, NumaPlacement::Begin(options.numa, options.numa_machine, *team));
    if (numa == nullptr && options.numa != "off") {
      TRY(fast, FastCores::Begin(options.numa_machine, *team));
    }
    // Devices are opened before memory is planned: a driver takes memory, too.
    TRY(devices, DeviceSetup::Open(*opened));
    if (options.predicts && !devices->empty()) {
      return Fail(Errc::kInvalidRequest,
                  "the layer that predicts further tokens (--draft mtp) is computed without "
                  "devices; leave out --device and --remote");
    }
    TRY(dense, DenseModel::Create(*opened, *team, lasting.state.stop, devices->first_here()));
    // A chunk that follows the budget would change the text where the text depends on slots or on
    // the rows of a step.
    const bool may_follow = options.chunk == 0 && !options.cache && devices->empty() &&
                            options.has_exact_experts() && !options.fast_batches &&
                            !opened->model.spec.encoder;  // a source is one chunk
    if (!may_follow) return LengthenChunk(lasting);
    const FixedBytes fixed = FixedFor(Limits());
    chosen.chunk = ChunkWithin(opened->plan.chunk, fixed.work, RoomIn(*opened, fixed));
    if (chosen.chunk == opened->plan.chunk) return {};
    dense.reset();
    devices.reset();
    fast.reset();
    numa.reset();
    team.reset();
  }
}

// A chunk by DeviceChunk() if the first device computes prompts. A source of an encoder is one
// chunk.
Status NativeEngine::Running::LengthenChunk(Lasting& lasting) {
  Device* const first = devices->first_here();
  const bool may_lengthen = opened->options.chunk == 0 && first != nullptr &&
                            dense->is_on_device() && !opened->model.spec.encoder;
  if (!may_lengthen) return {};
  const uint32_t usual = opened->plan.chunk;
  const DeviceBudget& there = first->plan();
  const uint64_t launches = LocalTransport::WorkBytes(LaunchShapeOf(*opened, *first->here()));
  const FixedBytes fixed = FixedFor(Limits());
  const uint32_t chunk =
      DeviceChunk({.usual = usual,
                   .n_ctx = opened->plan.n_ctx,
                   .router = opened->model.spec.router,
                   .expert_bytes = opened->catalog.total_bytes(),
                   .vram = first->vram(),
                   .work_there = there.bytes - there.dense - there.kv,
                   .slots_there = first->vram() - std::min(first->vram(), there.bytes + launches),
                   .work_here = fixed.work,
                   .slots_here = RoomIn(*opened, fixed)});
  for (const uint32_t tried : {chunk, usual}) {
    if (tried == opened->plan.chunk) return {};
    dense.reset();
    first->plan() = DeviceBudget{.info = first->info()};
    TRY_STATUS(opened->PlanFor(tried));
    TRY(dense, DenseModel::Create(*opened, *team, lasting.state.stop, first));
    if (dense->is_on_device()) return {};
  }
  return {};
}

// kDevice: the CPU alone is expected to be faster than with a device that nobody asked for.
Status NativeEngine::Running::CompareWays() {
  ways = FindDeviceWays(*opened, *devices, *slots, *dense, joined->tier());
  if (!ways) return {};
  DeviceBudget& plan = devices->first_here()->plan();
  plan.ways = ways->prices;
  const std::string figures = TextOf(ways->prices, plan.info.name);
  if (ways->may_leave_at_start && ways->prices.leaves_device(kGainToLeaveDevice)) {
    return Fail(Errc::kDevice, "{}", figures);
  }
  LogInfo("{}", figures);
  return {};
}

Status NativeEngine::Running::Allocate(const EngineOptions& options, Lasting& lasting) {
  TRY_STATUS(AllocateFixed(options, lasting));
  TRY_STATUS(devices->AddRemotes());
  TRY_STATUS(devices->AllocateSlots(*dense));
  TRY_STATUS(devices->Try(*dense, *team));

  const EnginePlan& plan = opened->plan;
  const ExpertExec::Limits limits = Limits();
  const uint32_t known = lasting.sequences ? lasting.sequences->states().size() : 0;
  TRY_STATUS(dense->TakeStates(RoomIn(*opened, FixedFor(limits)), known));
  if (!lasting.sequences) {
    const std::optional<EncoderSpec>& encoder = opened->model.spec.encoder;
    lasting.sequences.emplace(plan.n_blocks, dense->n_states(), plan.recent,
                              encoder ? std::optional(encoder->source_end) : std::nullopt);
  }
  ChooseTiers(*opened, FixedFor(limits), *devices);
  TRY(slots, MakeSlots(*opened, *devices, FixedFor(limits)));
  if (dense->table() != nullptr) {
    // The table's rows are another object once the dense part has moved to the CPU.
    slots->residency().PumpBeside([&its = *dense] {
      if (its.table() != nullptr) its.table()->Pump();
    });
  }
  if (!devices->empty()) {
    TRY(joined, JoinDevices(*opened, *devices, *slots, *dense));
    TRY_STATUS(CompareWays());
  }
  facts = FindFacts();
  if (options.planned) options.planned(facts.memory);
  TRY(lossy, LossyChoices::Create(*opened, *slots));
  TRY(decisions, LayerDecisions::Create(opened->predictor, *slots,
                                        {.look_ahead = plan.look_ahead,
                                         .lossy = lossy->parts(),
                                         .tier = joined ? &joined->tier() : nullptr,
                                         .is_fixed = is_repeatable()}));
  return MakeForward(lasting, limits);
}

// Makes the parts that compute steps.
Status NativeEngine::Running::MakeForward(Lasting& lasting, const ExpertExec::Limits& limits) {
  const ModelFile& model = lasting.model;
  TRY(experts, ExpertExec::Create({.team = *team,
                                   .residency = slots->residency(),
                                   .catalog = opened->catalog,
                                   .kernels = opened->kernels,
                                   .layers = dense->layers(),
                                   .devices = joined.get(),
                                   .interleave = WhenToInterleave(),
                                   .stop = &lasting.state.stop},
                                  limits));
  forward.emplace(ForwardParts{.spec = model.spec,
                               .graph = dense->graph(),
                               .buffers = dense->buffers(),
                               .residency = slots->residency(),
                               .protocol = decisions->protocol(),
                               .planner = decisions->planner(),
                               .experts = *experts,
                               .team = *team,
                               .layers = dense->layers(),
                               .clock = opened->options.clock,
                               .stop = lasting.state.stop,
                               .watchers = lasting.state.watchers,
                               .devices = joined.get(),
                               .capacity = CapacityOf(*opened)});
  if (opened->checks()) {
    TRY(exact_check,
        ExactCheck::Create(*opened, *dense, *team, slots->queue().options(), lasting.state.stop));
  }
  frame.emplace(slots->residency(), *decisions, opened->watch, lasting.state,
                StepFrame::Clocks{.waited = [&its = *experts] { return its.wait_seconds(); },
                                  .serial =
                                      [&its = *forward] {
                                        return std::pair(its.serial().seconds, its.serial().steps);
                                      },
                                  .now = opened->options.clock,
                                  .table = [&its = *dense] { return its.table_counts(); }});
  runner.emplace(*opened, *lasting.sequences, *dense, *forward, *frame);
  if (opened->little.is_on()) little.emplace(*opened, *runner, *forward, *frame);
  return {};
}

void NativeEngine::Running::ForgetOldCosts() const {
  constexpr double kMostOff = 1.2;
  if (!joined) return;
  const LaneRatios ratios = joined->ratios();
  for (uint32_t d = 0; d < joined->size(); ++d) {
    const DeviceBudget& plan = (*joined)[d].plan();
    if (plan.costs != CostSource::kKept || !ratios.differs(d, kMostOff)) continue;
    ForgetCosts(opened->options.device.cost_folder, plan.info);
  }
}

// Bytes taken in memory whatever the number of slots.
FixedBytes NativeEngine::Running::FixedFor(const ExpertExec::Limits& limits) const {
  const ModelSpec& spec = opened->model.spec;
  FixedBytes fixed{.work = ExpertExec::BytesFor(limits),
                   .threads = opened->cpu->threads(),
                   .n_vocab = spec.n_vocab};
  if (spec.predicts()) fixed.work += CarriedRows::BytesFor(spec.n_embd);
  dense->AddTo(fixed);
  devices->AddTo(fixed);
  if (opened->checks()) {
    fixed.work +=
        ExactCheck::BytesFor(spec, opened->catalog, opened->kernels, opened->planned_block());
  }
  return fixed;
}

Status NativeEngine::Running::Load(Lasting& lasting) {
  // Dense weights come before slots: their staging memory lies where slots will be.
  if (numa) TRY_STATUS(numa->PlaceDense(dense->tensors()));
  TRY_STATUS(dense->Load(slots->queue(), *team, lasting.state.report, lasting.weights));
  if (may_recall()) facts.recalled = slots->Recall();
  // A driver has placed its pinned memory already.
  if (numa && !devices->slot_memory()) {
    TRY_STATUS(numa->PlaceSlots(opened->catalog, slots->residency(), lasting.state.report));
  }
  TRY_STATUS(slots->Populate(*team, lasting.state.report));
  TRY(kept, KeptSequences::Create({.opened = *opened,
                                   .dense = *dense,
                                   .devices = *devices,
                                   .slots = *slots,
                                   .is_repeatable = is_repeatable()},
                                  lasting.weights, *lasting.sequences));
  if (joined) {
    TRY_STATUS(joined->Fill(devices->fill_first(), lasting.state.report));
    TRY_STATUS(BringToRemotes(*opened, *devices, *slots, *joined));
  }
  kit.emplace(*team, *slots, *decisions, *frame);
  return {};
}

EngineFacts NativeEngine::Running::FindFacts() const {
  const ModelFile& model = opened->model;
  const std::string_view kernel = opened->kernels.front().kernel.back().name;
  EngineFacts found{.engine = "native",
                    .id = model.id,
                    .arch_name = model.spec.arch_name,
                    .threads = opened->cpu->threads(),
                    .n_layer = model.spec.n_main_layer(),
                    .n_vocab = model.spec.n_vocab,
                    .n_ctx_train = model.spec.n_ctx_train,
                    .n_ctx = opened->plan.n_ctx,
                    .chunk = opened->plan.chunk,
                    .has_states = opened->remembers.has_states() || opened->plan.recent.window > 0,
                    .encoder = model.spec.encoder,
                    .position_bytes = opened->position_bytes(),
                    .state_bytes = opened->state_bytes(),
                    .max_look_ahead = opened->plan.look_ahead,
                    .token_layers = model.spec.n_token_layers(),
                    .description = Format("{}, {}, experts by {}{}{}", opened->cpu->description(),
                                          opened->reader->description(), kernel, numa ? ", " : "",
                                          numa ? ToText(numa->plan()) : ""),
                    .kernels = Format("{}, experts by {}", opened->cpu->plug_in(), kernel)};
  if (model.spec.predicts()) found.predicting_bytes = PredictingBytes(model, opened->catalog);
  slots->AddTo(found);
  for (const auto& one : devices->devices()) found.memory.devices.push_back(one->plan());
  found.memory.tiers = devices->tiers();
  return found;
}

}  // namespace moestro
