// SPDX-License-Identifier: MIT
// Chooses the expert that gives up its slot. Pure: no clock, lock or I/O, and no allocation after
// Reset(), so that the simulator and the engine run the same code. One idea per file under
// policies/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/ids.h"
#include "core/run_identity.h"

namespace moestro {

// Tells the slots that must not be chosen: leased, or with bytes under way.
class PinView {
 public:
  virtual bool is_pinned(SlotId slot) const = 0;

 protected:
  ~PinView() = default;
};

// Sizes of the slots and experts that a policy ranks. Keys stay below these counts.
struct PolicyShape {
  size_t slots = 0;
  uint32_t layers = 1;
  uint32_t experts = 1;  // per layer
  // First layer of a decode step; the layers before it are an encoder's, which only sources go
  // through.
  uint32_t first_layer = 0;
  size_t keys = 0;  // experts that may take these slots; 0: all of the model

  static PolicyShape Of(size_t slots, const MoeShape& moe, size_t keys = 0) {
    return {.slots = slots,
            .layers = moe.n_layer,
            .experts = moe.n_expert,
            .first_layer = moe.n_encoder,
            .keys = keys};
  }
  bool has_slot_for_each() const { return slots >= (keys > 0 ? keys : size_t{layers} * experts); }
};

class Policy {
 public:
  virtual ~Policy() = default;
  // Forgets everything; slots are numbered 0 .. slots-1 and all empty.
  virtual void Reset(const PolicyShape& shape) = 0;
  // The decode's clock. A sequence begins while no other lives; the next layer's requests (the
  // shape's first layer begins a step).
  virtual void SequenceBegun() {}
  virtual void LayerBegun(ExpertLayerId /*layer*/) {}
  // The experts that `layer`, a later layer of this step, will probably need; called after
  // LayerBegun(). A hint that may be wrong, and that need not come.
  virtual void Predicted(ExpertLayerId /*layer*/, std::span<const ExpertId> /*experts*/) {}
  // A row of a prompt chose these experts of `layer`. The rows of a layer come in their order, and
  // no decode row is in their step. The row counts as a use of the experts, but takes no slot.
  virtual void Prompted(ExpertLayerId /*layer*/, std::span<const ExpertId> /*experts*/) {}
  // `slot` now belongs to `key` and has just been used, by `rows` of the step: one use for recency,
  // `rows` uses for frequency. REQUIRES: the slot was empty.
  virtual void Inserted(SlotId slot, ExpertKey key, uint32_t rows) = 0;
  virtual void Touched(SlotId slot, uint32_t rows) = 0;  // used again
  // `ran`, a copy of an expert that has its slots elsewhere, has been used by `rows` of the step.
  virtual void OtherCopyUsed(ExpertKey /*ran*/, uint32_t /*rows*/) {}
  // `slot` is empty again, by eviction or after a failed read.
  virtual void Erased(SlotId slot) = 0;
  // The slot to give up. REQUIRES: some occupied slot is not pinned.
  virtual SlotId Victim(const PinView& pins) const = 0;
};

// A policy by name, with its parameters; parameters that are not set keep their defaults.
struct PolicyChoice {
  std::string name = "next-use";
  std::map<std::string, double> parameters = {};
};

// "hobbit", or "hobbit:w_lru=0.4,w_fld=0.2". kUsage for what MakePolicy() would refuse.
Result<PolicyChoice> ParsePolicyChoice(std::string_view text);
// Writes a choice as the text that ParsePolicyChoice() reads.
std::string ToText(const PolicyChoice& choice);

struct PolicyParameter {
  std::string_view name;
  double default_value = 0.0;
  double min = 0.0;
  double max = 1.0;
  // Only its share of the sum over all of the policy's shares counts.
  bool is_share = false;
  // Redundant beside another parameter while all experts have one precision.
  bool is_idle = false;
};

struct PolicyInfo {
  std::string_view name;
  std::string_view summary;  // one line for --help
  std::vector<PolicyParameter> parameters;
};

// The known policies, in the order of --help.
std::vector<PolicyInfo> KnownPolicies();
// kUsage for an unknown name or parameter, or a value outside its range; the message lists the
// known ones.
Result<std::unique_ptr<Policy>> MakePolicy(const PolicyChoice& choice);

// The best policy and parameters for a model, per number of slots: `moestro sim --tune` finds them
// and the engine follows them. Values only; learned/tunings.h stores them.

struct TunedSize {
  uint64_t slots = 0;
  PolicyChoice choice = {};
  // Hit rates on the tokens that the search did not use, 0 to 1: of `choice`, and of the same
  // policy with its default parameters.
  double hit_rate = 0.0;
  double standard_hit_rate = 0.0;
};

struct PolicyTuning {
  ModelId model = {};
  std::vector<TunedSize> sizes = {};
};

// The choice that was tuned for the number of slots nearest to `slots` by ratio. REQUIRES: the
// tuning has a size, `slots` and all tuned slots are above 0.
const PolicyChoice& ChoiceFor(const PolicyTuning& tuning, uint64_t slots);

}  // namespace moestro
