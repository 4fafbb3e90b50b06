// SPDX-License-Identifier: MIT
// No layer runs out of slots, whatever devices, prefetches and upgrades keep: machines of random
// sizes run random steps through everything here that decides, and what it decides is made true in
// the order of forward/step.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "decide/ahead/predictors.h"
#include "decide/ahead/prefetch_planner.h"
#include "decide/devices/device_tier.h"
#include "decide/layer/layer_planner.h"
#include "decide/layer/layer_protocol.h"
#include "decide/layer/lossy_chooser.h"
#include "decide/layer/router.h"
#include "decide/slots/pool_room_memory_testing.h"
#include "decide/slots/pool_room_sizes_testing.h"
#include "decide/slots/slot_table.h"

namespace moestro {
namespace {

class Machine final : private ExpertHolder {
 public:
  Machine(const Sizes& sizes, Dice& dice)
      : sizes_(sizes),
        dice_(dice),
        memory_(sizes, dice),
        router_{.n_expert = sizes.moe.n_expert, .n_used = sizes.moe.n_used},
        chooser_(sizes.lossy, router_, sizes.has_low, nullptr),
        choices_(Model(sizes)),
        upgrades_(sizes.moe),
        planner_(*MakePredictor({"next-router"}), {.moe = sizes.moe, .depth = sizes.depth},
                 {.slots = sizes.slots,
                  .pool_of = [this](ExpertKey key) { return sizes_.pool_of(key); },
                  .is_fixed = true},
                 [this](ExpertKey key) { return contains(key); }),
        protocol_(planner_, *this, sizes.moe.n_layer,
                  {.chooser = &chooser_,
                   .choices = sizes.lossy.is_reproducible ? &choices_ : nullptr,
                   .upgrades = sizes.lossy.upgrades ? &upgrades_ : nullptr}) {
    if (!sizes.device_slots.empty()) tier_.emplace(Parts(), sizes.costs, sizes.mode);
  }

  // Why it stopped; empty: it did not.
  std::string Run(uint32_t steps) {
    for (uint32_t step = 0; step < steps && why_.empty(); ++step) {
      if (!sizes_.has_little) {
        Step({}, {});
        continue;
      }
      const bool has_low = sizes_.has_low;
      Step({.n_used = 1, .misses = has_low ? Misses::kLow : Misses::kDrop}, {});
      std::vector<std::vector<ExpertId>> foreseen(sizes_.moe.n_layer);
      for (std::vector<ExpertId>& of_layer : foreseen) {
        of_layer = RoutingOf(sizes_.rows, sizes_.moe.n_used).experts;
      }
      if (why_.empty()) Step({}, foreseen);
    }
    Land();
    return why_;
  }

 private:
  DeviceTierSetup Parts() {
    DeviceTierSetup parts{
        .tables = {},
        .form_of = [this](ExpertKey key) { return sizes_.pool_of(key); },
        .bytes_of = [](ExpertKey key) { return key.copy == kLowCopy ? 500'000U : 1'000'000U; },
        .in_memory = [this](ExpertKey key) { return memory_.contains(key); },
        .memory_slots = sizes_.slots,
        .pool_of = [this](ExpertKey key) { return sizes_.pool_of(key); },
        .n_expert = sizes_.moe.n_expert,
        .n_layers = sizes_.moe.n_layer,
        .tiers = sizes_.tiers,
        .drop = [this](ExpertKey key) { memory_.Drop(key); },
        .memory_room =
            [this](ExpertKey key, std::span<const ExpertKey> keeps) {
              return memory_.RoomFor(key, keeps);
            }};
    for (const std::vector<uint64_t>& its : sizes_.device_slots) {
      std::vector<std::optional<SlotTable>>& tables = parts.tables.emplace_back();
      for (const uint64_t n : its) {
        tables.emplace_back();
        if (n > 0) tables.back().emplace(Table(sizes_, n));
      }
    }
    if (sizes_.is_fixed) parts.memory = Model(sizes_);
    return parts;
  }

  bool contains(ExpertKey key) const override {
    return memory_.contains(key) || (tier_ && tier_->contains(key));
  }
  void BeginLayer(ExpertLayerId layer) override {
    if (tier_) tier_->BeginLayer(layer);
  }
  void Predict(ExpertLayerId, std::span<const ExpertId>) override {}
  void LearnPrompt(const LayerPlan&) override {}
  bool Prefetch(ExpertKey key) override {
    if (tier_ && tier_->contains(key) && !memory_.contains(key)) return false;
    const std::optional<Memory::Pin> pin = memory_.TryAcquire(key, Use::kPrefetch);
    if (pin) prefetched_.push_back(*pin);
    return pin.has_value();
  }
  void Withdraw(ExpertKey key) override { Release(key); }
  void Release(ExpertKey key) override {
    const auto pin = std::ranges::find(prefetched_, key, &Memory::Pin::key);
    memory_.Unpin(*pin);
    prefetched_.erase(pin);
  }
  bool is_complete(ExpertKey key) const override {
    return memory_.is_ready(*std::ranges::find(prefetched_, key, &Memory::Pin::key));
  }

  Routing RoutingOf(uint32_t rows, uint32_t n_used, uint32_t candidates = 0) {
    std::vector<float> logits(size_t{rows} * sizes_.moe.n_expert);
    for (float& logit : logits) logit = static_cast<float>(4.0 * dice_.Share());
    RouterSpec router = router_;
    router.n_used = n_used;
    return Route(router, logits, {}, candidates);
  }

  void Step(const LittleStep& little, std::span<const std::vector<ExpertId>> foreseen) {
    protocol_.BeginStep(little);
    if (!foreseen.empty()) protocol_.Foresee(foreseen, sizes_.rows);
    Land();
    const uint32_t prompt = sizes_.has_little ? 0 : sizes_.prompt_rows;
    std::vector<RowKind> kinds(sizes_.rows, RowKind::kDecode);
    kinds.resize(sizes_.rows + prompt, RowKind::kPrompt);
    const uint32_t used = little.is_on() ? little.n_used : sizes_.moe.n_used;
    Stream read_ahead(memory_, {});
    for (uint16_t l = 0; l < sizes_.moe.n_layer && why_.empty(); ++l) {
      const auto rows = static_cast<uint32_t>(kinds.size());
      Routing routing = RoutingOf(rows, used, protocol_.candidates());
      std::vector<ExpertId> predicted;
      const uint32_t ahead = std::min(sizes_.depth, sizes_.moe.n_layer - 1 - l);
      for (uint32_t d = 0; d < ahead; ++d) predicted.append_range(RoutingOf(rows, used).experts);
      LayerPlan plan = protocol_.AfterRouting({ExpertLayerId{l}, routing, kinds, predicted});
      if (tier_) Assign(plan);
      Stream own(memory_, Wanted(plan));
      own.Advance();
      read_ahead = Stream(memory_, Ahead(ExpertLayerId{l}, prompt));
      protocol_.Prefetch();
      RunLayer(plan, own, read_ahead);
    }
    if (!why_.empty() || dice_.OneIn(8)) protocol_.Clear();  // as if it had been stopped
  }

  void Assign(LayerPlan& plan) {
    tier_->Assign(plan);
    std::vector<ExpertKey> own;
    for (const PlannedExpert& expert : plan.experts) own.push_back(expert.key);
    for (const MovedExpert& moved : plan.moved_back) memory_.Adopt(moved.key, own);
  }
  static std::vector<Stream::Wanted> Wanted(const LayerPlan& plan) {
    std::vector<Stream::Wanted> wanted;
    for (const PlannedExpert& expert : plan.experts) {
      if (expert.place == Place::kDevice) break;
      wanted.push_back({.key = expert.key, .use = expert.use, .is_staged = expert.is_staged});
    }
    return wanted;
  }
  std::vector<Stream::Wanted> Ahead(ExpertLayerId layer, uint32_t prompt_rows) const {
    std::vector<Stream::Wanted> wanted;
    for (const ExpertKey key : PlanReadAhead(layer, sizes_.moe.n_layer, sizes_.moe.n_expert,
                                             sizes_.moe.n_used, prompt_rows)) {
      wanted.push_back({.key = key});
    }
    return wanted;
  }

  // Slots are let go as late as it can be; false: no slot will ever be free.
  bool Compute(Stream& own, Stream& ahead) {
    while (!own.is_done()) {
      own.Advance();
      if (own.all_taken()) ahead.Advance();
      if (!memory_.idle() && dice_.OneIn(2)) {
        memory_.LandOne();
      } else if (!own.all_taken() || dice_.OneIn(2)) {
        if (own.LetOneGo()) continue;
        if (memory_.idle()) return false;
        memory_.LandOne();
      } else if (!own.LetOneGo()) {
        memory_.LandOne();
      }
    }
    return true;
  }

  void RunLayer(LayerPlan& plan, Stream& own, Stream& read_ahead) {
    const auto stop = [&](const char* what) {
      why_ = std::string("layer ") + std::to_string(plan.layer.value) + what;
    };
    if (!Compute(own, read_ahead)) return stop(": an expert finds no slot");
    if (!tier_) return;
    if (dice_.OneIn(16)) {
      const auto device = static_cast<uint32_t>(dice_.Below(sizes_.device_slots.size()));
      tier_->Failed(plan, device);
      if (dice_.OneIn(8)) tier_->TurnOff(device);
      own = Stream(memory_, {});
      read_ahead = Stream(memory_, {});
      own = Stream(memory_, Wanted(plan));
      own.Advance();
      if (!Compute(own, read_ahead)) stop(": an expert finds no slot after a device has failed");
      return;
    }
    tier_->Done(plan);
    Promote(plan);
  }

  void Promote(const LayerPlan& plan) {
    const std::optional<DeviceTier::Promotion> promotion = tier_->Promote(plan);
    if (!promotion) return;
    if (promotion->moved_back) memory_.Adopt(*promotion->moved_back, {&promotion->key, 1});
    const std::optional<Memory::Pin> pin = PinFor(promotion->key);
    if (!pin || !memory_.is_ready(*pin)) {
      if (sizes_.is_fixed) why_ = "whether an expert can be copied to a device depends on timing";
      if (pin) memory_.Unpin(*pin);
      tier_->Promoted(*promotion, false);
      return;
    }
    under_way_.emplace_back(*promotion, *pin);
  }

  // As DeviceList does.
  std::optional<Memory::Pin> PinFor(ExpertKey key) {
    std::optional<Memory::Pin> pin = memory_.TryAcquire(key, Use::kPrefetch);
    if (!sizes_.is_fixed || (pin && memory_.is_ready(*pin))) return pin;
    memory_.Drain();
    if (pin) return pin;
    pin = memory_.TryAcquire(key, Use::kPrefetch);
    memory_.Drain();
    return pin;
  }

  void Land() {
    for (const auto& [promotion, pin] : under_way_) {
      memory_.Unpin(pin);
      tier_->Promoted(promotion, !dice_.OneIn(10));
    }
    under_way_.clear();
  }

  const Sizes& sizes_;
  Dice& dice_;
  Memory memory_;
  RouterSpec router_;
  LossyChooser chooser_;
  ResidentModel choices_;
  Upgrades upgrades_;
  PrefetchPlanner planner_;
  LayerProtocol protocol_;
  std::optional<DeviceTier> tier_;
  std::vector<Memory::Pin> prefetched_;
  std::vector<std::pair<DeviceTier::Promotion, Memory::Pin>> under_way_;
  std::string why_;
};

// One of them alone: MOESTRO_POOL_ROOM_SEED=n.
TEST(PoolRoom, NoLayerRunsOutOfSlotsInTenThousandRandomMachines) {
  const char* chosen = std::getenv("MOESTRO_POOL_ROOM_SEED");
  const uint64_t first = chosen != nullptr ? std::strtoull(chosen, nullptr, 10) : 1;
  const uint64_t last = chosen != nullptr ? first : 10'000;
  size_t stopped = 0;
  for (uint64_t seed = first; seed <= last; ++seed) {
    Dice dice(seed);
    const Sizes sizes = RandomSizes(dice);
    const std::string why = Machine(sizes, dice).Run(4);
    if (why.empty()) continue;
    if (++stopped <= 10) ADD_FAILURE() << "seed " << seed << ": " << sizes.text() << ": " << why;
  }
  EXPECT_EQ(stopped, 0U) << "of " << last - first + 1;
}

TEST(PoolRoom, PrefetchesTakeHalfOfWhatALayerDoesNotNeed) {
  EXPECT_EQ((PoolRoom{.slots = 2, .own = 2}.prefetches()), 0U);
  EXPECT_EQ((PoolRoom{.slots = 4, .own = 2}.prefetches()), 0U);
  EXPECT_EQ((PoolRoom{.slots = 104, .own = 2}.prefetches()), 50U);
}

TEST(PoolRoom, WhatIsKeptForLaterLeavesALayerItsOwn) {
  for (uint64_t slots = 1; slots < 60; ++slots) {
    for (uint64_t own = 1; own < 70; ++own) {
      const PoolRoom room{.slots = slots, .own = own};
      const uint64_t kept = room.prefetches() + room.promotions() + (room.may_upgrade() ? 1 : 0);
      EXPECT_LT(kept, slots) << own;
      if (slots > own) {
        EXPECT_LE(kept + own, slots) << own;
      }
    }
  }
}

}  // namespace
}  // namespace moestro
