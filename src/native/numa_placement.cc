// SPDX-License-Identifier: MIT
#include "native/numa_placement.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <set>
#include <utility>

#include "base/number.h"
#include "base/pages.h"
#include "base/terminal.h"
#include "compute/product_node.h"
#include "compute/weight_set.h"

namespace moestro {
namespace {

// Slots per batch: pages are touched before the next list is built, to bound the list's memory.
constexpr uint64_t kSlotsAtATime = 256;

std::byte* At(uint64_t address) { return reinterpret_cast<std::byte*>(address); }
uint64_t AddressOf(const void* data) { return reinterpret_cast<uintptr_t>(data); }

// The first error of any thread; 0: none.
class FirstError {
 public:
  void Note(int error) {
    int none = 0;
    if (error != 0) first_.compare_exchange_strong(none, error);
  }
  int first() const { return first_.load(); }

 private:
  std::atomic<int> first_{0};
};

// All CPUs of the plan's threads.
std::vector<uint32_t> CpusOf(const NumaPlan& plan) {
  std::set<uint32_t> cpus;
  for (const NumaPlan::Thread& thread : plan.threads) {
    cpus.insert(thread.cpus.begin(), thread.cpus.end());
  }
  return {cpus.begin(), cpus.end()};
}

RowExtent PlaceOf(const ggml_tensor* weight) {
  return {.begin = AddressOf(weight->data),
          .row_bytes = weight->nb[1],
          .rows = static_cast<uint32_t>(weight->ne[1])};
}

// Whether the team multiplies the weight row by row where it lies.
bool IsOurs(const ggml_tensor* weight) {
  const RowProduct* by_row = RowProductOf(weight);
  return by_row != nullptr && by_row->kernel != nullptr && weight->ne[2] == 1 && weight->ne[3] == 1;
}

}  // namespace

Result<std::unique_ptr<NumaPlacement>> NumaPlacement::Begin(std::string_view asked,
                                                            std::shared_ptr<NumaMachine> machine,
                                                            Team& team) {
  if (asked == "off") return nullptr;
  if (machine == nullptr) machine = std::make_shared<KernelNumaMachine>();
  NumaPlan plan = PlanNuma(machine->topology(), team.threads());
  if (!plan.is_on()) return nullptr;
  if (machine->has_chosen_pages()) {
    LogInfo("{} NUMA nodes: left to the memory policy of this process", plan.nodes.size());
    return nullptr;
  }
  std::unique_ptr<NumaPlacement> part(new NumaPlacement(std::move(plan), std::move(machine), team));
  TRY_STATUS(part->MoveThreads());
  TRY_STATUS(part->TakePages(NewPages::kInterleaved, part->plan_.nodes));
  LogInfo("{}", ToText(part->plan_));
  return part;
}

NumaPlacement::~NumaPlacement() {
  const Status anywhere = plan_.has_rows() ? RunAnywhere() : Status();
  const Status usual = TakePages(NewPages::kUsual, {});
  for (const Status* undone : {&anywhere, &usual}) {
    if (!*undone) LogInfo("threads stay on their NUMA nodes: {}", undone->error().message);
  }
}

// Moves each thread to its node. Rows have owners only if all threads are where the plan has them.
Status NumaPlacement::MoveThreads() {
  if (!plan_.has_rows()) return {};
  FirstError failed;
  TRY_STATUS(team_.Run([&](int thread, int /*n_threads*/) {
    failed.Note(machine_->RunOn(plan_.threads[static_cast<size_t>(thread)].cpus));
  }));
  if (failed.first() == 0) return {};
  LogInfo("threads are not moved to their NUMA nodes: {}", std::strerror(failed.first()));
  TRY_STATUS(RunAnywhere());
  plan_.threads.clear();
  return {};
}

Status NumaPlacement::RunAnywhere() const {
  const std::vector<uint32_t> cpus = CpusOf(plan_);
  return team_.Run([&](int /*thread*/, int /*n_threads*/) { machine_->RunOn(cpus); });
}

// Sets where new pages come from. Where the kernel refuses, a page still comes from the node of the
// thread that touches the page.
Status NumaPlacement::TakePages(NewPages how, std::span<const uint32_t> nodes) const {
  FirstError failed;
  TRY_STATUS(team_.Run(
      [&](int /*thread*/, int /*n_threads*/) { failed.Note(machine_->TakePages(how, nodes)); }));
  if (failed.first() != 0) {
    LogInfo("pages are taken from NUMA nodes as usual: {}", std::strerror(failed.first()));
  }
  return {};
}

// Keeps memory in small pages, since a huge page would hold rows of several nodes.
void NumaPlacement::KeepSmall(std::span<std::byte> memory) const {
  const std::span<std::byte> pages = WholePages(memory, PageBytes());
  if (pages.empty()) return;
  const int error = machine_->KeepSmall(pages);
  if (error != 0) LogInfo("huge pages hold rows of several NUMA nodes: {}", std::strerror(error));
}

Status NumaPlacement::PlaceSlots(const ExpertCatalog& catalog, const Residency& residency,
                                 const Progress& report) const {
  if (!plan_.has_rows()) return {};
  for (uint32_t p = 0; p < catalog.pools.size(); ++p) {
    const Residency::Grid grid = residency.grid(p);
    const std::vector<RowExtent> matrices = MatricesOfSlot(catalog, p, grid.offset);
    if (grid.slots == 0 || matrices.empty()) continue;
    KeepSmall({grid.begin, static_cast<size_t>(grid.slots * grid.stride)});
    std::vector<NodeBytes> rows;
    for (uint64_t slot = 0; slot < grid.slots; ++slot) {
      for (RowExtent matrix : matrices) {
        matrix.begin += AddressOf(grid.begin) + slot * grid.stride;
        AddRows(plan_, {&matrix, 1}, rows);
      }
      if ((slot + 1) % kSlotsAtATime != 0 && slot + 1 < grid.slots) continue;
      // A matrix begins somewhere in a block of the disk; the place is not known yet.
      const uint64_t slack = residency.block() - 1;
      TRY_STATUS(Touch(PagesOfNodes(std::exchange(rows, {}), slack, PageBytes())));
      report("placing memory", slot + 1, grid.slots);
    }
  }
  return {};
}

Status NumaPlacement::PlaceDense(const ModelTensors& tensors) const {
  if (!plan_.has_rows()) return {};
  std::vector<NodeBytes> rows;
  std::set<ggml_backend_buffer_t> buffers;
  for (const std::vector<const ggml_tensor*>& joined : JoinedWeights(tensors)) {
    std::vector<RowExtent> matrices;
    for (const ggml_tensor* weight : joined) {
      buffers.insert(weight->buffer);
      matrices.push_back(PlaceOf(weight));
    }
    AddRows(plan_, matrices, rows);
  }
  for (ggml_backend_buffer_t buffer : buffers) {
    KeepSmall({static_cast<std::byte*>(ggml_backend_buffer_get_base(buffer)),
               ggml_backend_buffer_get_size(buffer)});
  }
  return Touch(PagesOfNodes(std::move(rows), 0, PageBytes()));
}

Status NumaPlacement::Touch(std::span<const NodeBytes> pages) const {
  return team_.Run(
      [&](int thread, int /*n_threads*/) { TouchShare(pages, static_cast<size_t>(thread)); });
}

// Touches the thread's share: the threads of a node take the node's ranges in turn.
void NumaPlacement::TouchShare(std::span<const NodeBytes> pages, size_t thread) const {
  const uint32_t node = plan_.threads[thread].node;
  if (node == NumaPlan::kNoNode) return;
  const auto is_of_node = [&](const NumaPlan::Thread& t) { return t.node == node; };
  const auto before = std::span(plan_.threads).first(thread);
  const auto rank = static_cast<size_t>(std::ranges::count_if(before, is_of_node));
  const auto n = static_cast<size_t>(std::ranges::count_if(plan_.threads, is_of_node));
  machine_->TakePages(NewPages::kPreferred, {&node, 1});
  size_t seen = 0;  // ranges of the node
  for (const NodeBytes& range : pages) {
    if (range.node != node || seen++ % n != rank) continue;
    machine_->Touch({At(range.begin), static_cast<size_t>(range.end - range.begin)});
  }
  machine_->TakePages(NewPages::kInterleaved, plan_.nodes);
}

std::vector<std::vector<const ggml_tensor*>> JoinedWeights(const ModelTensors& tensors) {
  using Weights = std::vector<const ggml_tensor*>;
  std::vector<Weights> joined;
  std::set<const ggml_tensor*> known;
  const auto add = [&](std::vector<ggml_tensor*> weights) {
    std::erase_if(weights, [&](ggml_tensor* w) { return w == nullptr || known.contains(w); });
    known.insert(weights.begin(), weights.end());
    if (ShareNode(weights)) {
      joined.emplace_back(weights.begin(), weights.end());
    } else {
      for (const ggml_tensor* w : weights) joined.push_back({w});
    }
  };
  // Groups are those of Linears() calls in the mixers and blocks of forward/dense.
  for (const auto& w : tensors.layers) {
    const bool is_kimi = w.kimi_gate_a != nullptr;
    add({w.attn_q, w.attn_k, w.attn_v, is_kimi ? w.state_beta : nullptr});
    add({w.state_in, w.delta_qkv, w.delta_gate, w.state_beta_alpha, w.state_beta, w.state_alpha});
    add({w.shared_gate, w.shared_up});
    add({w.dense_gate, w.dense_up});
  }
  const auto alone = [&](const TensorRole& /*role*/, ggml_tensor* w) { add({w}); };
  for (const auto& w : tensors.layers) ForEachLayerRole(alone, w);
  ForEachModelRole(alone, tensors);
  std::erase_if(joined,
                [](const Weights& weights) { return !std::ranges::all_of(weights, IsOurs); });
  return joined;
}

}  // namespace moestro
