// SPDX-License-Identifier: MIT
// To whom keys and values belong: the model's weights, and the choices of the run.
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <utility>

#include "base/hash.h"
#include "device/attention_kernel.h"
#include "learned/beside_model.h"
#include "memory/kv_choices.h"
#include "native/find_weights.h"
#include "native/native_impl.h"

namespace moestro {
namespace {

// The content of a small file that decides something.
Result<std::string> HashOfFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  if (!file.good() && !file.eof()) {
    return Fail(Errc::kIo, "cannot read {}: {}", path, std::strerror(errno));
  }
  Fnv1a hash;
  hash.Add(bytes);
  return Format("{:016x}", hash.value());
}

// The processor's kernels: theirs of other names round otherwise.
std::string KernelNames(const CpuDevice& device, const std::vector<FormKernels>& kernels,
                        const EngineOptions& options) {
  std::string names = Format("ggml {} {}", ggml_version(), device.plug_in());
  std::string_view last;
  for (const FormKernels& form : kernels) {
    for (const ExpertKernel& kernel : form.kernel) {
      if (kernel.name != last) names += Format(", {}", kernel.name);
      last = kernel.name;
    }
  }
  names += Format(", attention {}", AttentionKernel::ForThisMachine().name);
  if (!options.repack) names += ", dense weights as in the file";
  return names;
}

void AddLossyChoices(const LossyOptions& lossy, bool has_low, KvChoices& choices) {
  const LossyOptions usual;
  if (has_low || lossy.t1_of(has_low) < 1.0) {
    choices.Add("--t1", Format("{}", lossy.t1_of(has_low)));
    choices.Add("--t2", Format("{}", lossy.t2_of(has_low)));
  }
  if (lossy.drop_below > 0.0) choices.Add("--drop-below", Format("{}", lossy.drop_below));
  if (lossy.prefer_resident > 0.0) {
    choices.Add("--prefer-resident", Format("{}", lossy.prefer_resident));
  }
  if (lossy.keep != usual.keep) choices.Add("--keep", Format("{}", lossy.keep));
  if (lossy.rescales) choices.Add("--rescale", "on");
  if (lossy.upgrades) choices.Add("--upgrade", "on");
  if (lossy.importance != usual.importance) choices.Add("--importance", lossy.importance);
}

void AddLittleChoices(const LittleOptions& little, uint32_t n_used, KvChoices& choices) {
  choices.Add("--little", Format("{}", n_used));
  if (little.fallback_share) {
    choices.Add("--little-share", Format("{}", *little.fallback_share));
  } else {
    choices.Add("--gamma", Format("{}", little.gamma));
  }
  choices.Add("--little-misses", std::string(ToString(little.misses)));
}

std::string Joined(std::span<const uint64_t> numbers) {
  std::string text;
  for (const uint64_t n : numbers) text += Format("{}{}", text.empty() ? "" : ",", n);
  return text;
}

}  // namespace

Status NativeEngine::Impl::LoadDenseWeights() {
  if (!lasting.weights_id) lasting.weights_id = KnownWeightsId(model, options.weights_folder);
  std::atomic<uint64_t> sum{0};
  const bool is_wanted = !lasting.weights_id && !lasting.dense_sum;
  TRY_STATUS(LoadDense(
      dense, *queue, *team,
      [this](uint64_t done, uint64_t total) { Report("loading", done, total); },
      is_wanted ? &sum : nullptr));
  if (is_wanted) lasting.dense_sum = sum.load();
  return {};
}

Result<uint64_t> NativeEngine::Impl::Weights() {
  if (!lasting.weights_id) {
    TRY(lasting.weights_id, FindWeightsId(model, options.weights_folder, lasting.dense_sum));
  }
  return *lasting.weights_id;
}

Status NativeEngine::Impl::CheckLowWeights() {
  if (!low) return {};
  uint64_t own = 0;
  if (low->source_weights) {
    TRY(own, Weights());
  }
  TRY_STATUS(moestro::CheckLowWeights(*low, model, own));
  TRY(low_id, FindWeightsId(*low, options.weights_folder));
  return {};
}

// docs/sequence-format.md has the table of flags that this must agree with.
Result<std::string> NativeEngine::Impl::FindChoices() const {
  KvChoices all;
  if (options.kv_type != KvType::kF16) all.Add("--kv-type", std::string(NameOf(options.kv_type)));
  const bool has_low = catalog.has_low();
  const bool is_lossy = !options.lossy.is_exact(has_low);
  const bool is_little = this->little.is_on();
  const bool asks_slots = is_lossy || (is_little && this->little.misses != Misses::kRead);
  if (asks_slots && low_id) all.Add("--low", Format("{:016x}", *low_id));
  if (is_lossy) AddLossyChoices(options.lossy, has_low, all);
  if (is_lossy && options.lossy.importance == "score-norm") {
    const std::string path =
        options.norms.empty() ? NormsBeside(model.gguf.paths().front()) : options.norms;
    TRY(std::string norms, HashOfFile(path));
    all.Add("--norms", std::move(norms));
  }
  if (is_little) AddLittleChoices(options.little, this->little.n_used, all);
  if (asks_slots && !options.lossy.is_reproducible) all.Add("--lossy-mode", "opportunistic");
  TRY_STATUS(AddDeviceChoices(all));
  if (asks_slots || (!gpus.empty() && is_repeatable())) {
    all.Add("slots", Joined(slots));
    all.Add("--policy", ToText(policy));
  }
  const AttentionSpec* rotated = model.spec.first_rotated();
  if (rotated != nullptr && rotated->form.long_short_factors) {
    all.Add("rope", n_ctx > rotated->rope->original_context ? "long factors" : "short factors");
  }
  if (DependsOnRows()) all.Add("rows", Format("of many at once, {} of a prompt", chunk));
  all.Add(kKernelsChoice, KernelNames(*device, kernels, options));
  return all.text();
}

// What a device computes depends on where things are, and so on what was measured; a file of costs
// makes that repeatable, so then all of it counts.
Status NativeEngine::Impl::AddDeviceChoices(KvChoices& all) const {
  if (gpus.empty()) return {};
  std::string names;
  std::string their_slots;
  for (const std::unique_ptr<UsedDevice>& gpu : gpus) {
    const DeviceInfo& info = gpu->device.info();
    names += Format("{}{} ({})", names.empty() ? "" : ", ", info.name, info.description);
    their_slots += Format("{}{}", their_slots.empty() ? "" : "; ", Joined(gpu->slots));
  }
  all.Add("--device", std::move(names));
  all.Add("--dense", graph->is_on_device() ? "device" : "cpu");
  all.Add("--place", std::string(NameOf(options.device.place)));
  all.Add("--tiers", std::string(NameOf(options.device.tiers)));
  if (options.device.latency_model.empty()) return {};
  TRY(std::string costs, HashOfFile(options.device.latency_model));
  all.Add("--latency-model", std::move(costs));
  all.Add("device-slots", std::move(their_slots));
  all.Add("--prefetch", Format("{} by {}", look_ahead, predictor_choice.name));
  return {};
}

// Matrices of a layer that ggml or a device multiplies, of a type that it may multiply otherwise
// for many rows than for one (docs/decisions/0007).
bool NativeEngine::Impl::DependsOnRows() const {
  if (!options.fast_batches && !graph->is_on_device()) return false;
  bool depends = false;
  for (const LayerRoles<ggml_tensor*>& layer : tensors.layers) {
    ForEachLayerRole(
        [&](const TensorRole& role, ggml_tensor* tensor) {
          const bool is_product = tensor != nullptr && role.use != TensorUse::kByHost &&
                                  role.kind == TensorKind::kMatrix;
          depends = depends || (is_product && ggml_is_quantized(tensor->type) &&
                                RowProductOf(tensor) == nullptr);
        },
        layer);
  }
  return depends;
}

Result<KvOrigin> NativeEngine::kv_origin() {
  TRY(SequenceHome home, impl_->Home());
  return std::move(home.origin);
}

Result<SequenceHome> NativeEngine::Impl::Home() {
  TRY(const uint64_t weights, Weights());
  return SequenceHome{
      .origin = {.model = model.id.fingerprint, .weights = weights, .choices = kv_choices},
      .shape = remembers,
      .n_ctx = n_ctx,
      .n_vocab = model.spec.n_vocab};
}

Status NativeEngine::SaveSequence(const Sequence& sequence, const std::string& notes,
                                  const std::string& path) {
  Impl& m = *impl_;
  TRY(const SequenceHome home, m.Home());
  return SaveTimeline(path, notes, home, *m.sequences->Find(sequence.id()),
                      {.kv = m.kv, .states = m.states});
}

Result<SavedTokens> NativeEngine::PeekSequence(const std::string& path) {
  TRY(const SequenceHome home, impl_->Home());
  TRY(const SequenceFile file, SequenceFile::Open(path, home));
  return file.ReadTokens();
}

Result<SavedSequence> NativeEngine::RestoreSequence(const std::string& path) {
  Impl& m = *impl_;
  TRY(const SequenceHome home, m.Home());
  TRY(const SequenceFile file, SequenceFile::Open(path, home));
  TRY_STATUS(file.Check());
  TRY(SavedTokens text, file.ReadTokens());
  SavedSequence saved{.sequence = NewSequence(), .notes = std::move(text.notes)};
  const SequenceId id = saved.sequence.id();
  TRY_STATUS(m.sequences->Append(id, text.tokens));
  TRY_STATUS(file.ReadInto(*m.sequences->Find(id), {.kv = m.kv, .states = m.states}));
  m.sequences->Commit(id);
  return saved;
}

}  // namespace moestro
