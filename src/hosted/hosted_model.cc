// SPDX-License-Identifier: MIT
#include "hosted/hosted_model.h"

#include <malloc.h>

#include <algorithm>
#include <array>
#include <span>

#include "base/number.h"
#include "base/pages.h"
#include "base/system_limits.h"
#include "compute/backends.h"
#include "core/extent.h"
#include "core/ids.h"
#include "hosted/context_memory.h"
#include "model/llama_load.h"

namespace moestro {
namespace {

// A table of which each token takes a row stays in the file from this size on.
constexpr uint64_t kTableInFile = kGiB;
// Rows of the second graph that LearningPass builds.
constexpr uint32_t kManyRows = 32;

// Bytes allocated from the C library's heap, large blocks included.
uint64_t HeapBytes() {
  const struct mallinfo2 heap = mallinfo2();
  return heap.uordblks + heap.hblkhd;
}

// Bytes that become resident of the memory in which libllama describes its graphs. libllama
// reserves 21 KiB for each node that a graph could have, 1.7 GiB for a chunk of 512 rows of some
// models, and touches what nodes in use take (0.8 KiB each) and some tables whole (3.3 to 4.1 % of
// all, over 16 architectures and chunks of 16 to 2,048 rows).
uint64_t TouchedOfGraphs(uint64_t reserved, uint64_t nodes) {
  constexpr uint64_t kShare = 16;
  constexpr uint64_t kNode = 2 * kKiB;
  return std::min(reserved, reserved / kShare + nodes * kNode);
}

ggml_type GgmlType(KvType type) {
  switch (type) {
    case KvType::kF16:
      return GGML_TYPE_F16;
    case KvType::kQ8:
      return GGML_TYPE_Q8_0;
    case KvType::kF32:
      return GGML_TYPE_F32;
  }
  return GGML_TYPE_F16;
}

// ggml's own scratch for products of a chunk: converted rows of the widest matrix, and of each
// row's experts.
constexpr uint64_t kScratchMargin = 8 * kMiB;

// Bytes of logits in a context for embeddings: a model that remembers tokens computes logits of
// every row of a chunk, whether wanted or not.
uint64_t LogitsBytes(const HostedModel& model, uint32_t rows) {
  return model.memory() != nullptr ? uint64_t{rows} * model.n_vocab() * sizeof(float) : 0;
}

bool StaysInFile(const MappedTensor& table) { return table.info->extent.length >= kTableInFile; }

}  // namespace

Status HostedModel::Load(const GgufFile& file, const Shape& shape) {
  LoadCpuBackend();
  if (ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU) == nullptr)
    return Fail(Errc::kUnsupported, "ggml found no CPU backend");
  std::array<ggml_backend_dev_t, 1> none = {nullptr};
  llama_model_params params = llama_model_default_params();
  params.devices = none.data();
  params.n_gpu_layers = 0;
  params.load_mode = LLAMA_LOAD_MODE_MMAP;
  params.use_extra_bufts = false;  // the weights stay where the file is mapped
  params.check_tensors = false;
  const LazyMapping lazy(file.stamps());
  std::string why;
  model_.reset(LoadByLlama(file.paths().front(), params, why));
  if (model_ == nullptr) {
    return Fail(Errc::kInvalidFile, "{}: libllama cannot read the model: {}", file.paths().front(),
                why);
  }
  TRY(ranges_, lazy.Remaining());
  return CheckUse(file, shape);
}

Status HostedModel::CheckUse(const GgufFile& file, const Shape& shape) const {
  if (llama_model_is_diffusion(model_.get())) {
    return Fail(
        Errc::kUnsupported,
        "{}: is a diffusion model, which fills in all of a text at once: libllama remembers "
        "no earlier tokens for it, so a token that is written would see itself alone. "
        "Moestro writes token by token; use a program for diffusion models",
        file.paths().front());
  }
  if (llama_model_has_encoder(model_.get()) || !llama_model_has_decoder(model_.get())) {
    return NoText(file);
  }
  if (shape.embeds && has_states()) {
    return Fail(Errc::kUnsupported,
                "{}: embeddings of models with states (Mamba, delta nets) are not offered",
                file.paths().front());
  }
  return shape.embeds ? CheckWholeLayers(file) : Status();
}

// libllama ends the process where a model for embeddings has a window in every layer: the mask of
// layers without one has no memory then.
Status HostedModel::CheckWholeLayers(const GgufFile& file) const {
  TRY(const std::optional<std::string> arch, file.FindString("general.architecture"));
  if (arch != "gemma-embedding" || n_window() == 0) return {};
  // A flag for each layer, or the distance of layers without a window.
  const std::string key = *arch + ".attention.sliding_window_pattern";
  const auto layers = static_cast<uint64_t>(llama_model_n_layer(model_.get()));
  const MetaValue* pattern = file.FindValue(key);
  if (pattern != nullptr && pattern->is_array) {
    TRY(const std::vector<uint64_t> flags, file.ArrayOfUints(key, layers));
    if (std::ranges::contains(flags, 0U)) return {};
  } else {
    constexpr uint64_t kUsual = 6;
    TRY(const std::optional<uint64_t> every, file.FindUint(key));
    if (every.value_or(kUsual) > 0 && every.value_or(kUsual) <= layers) return {};
  }
  return Fail(Errc::kUnsupported,
              "{}: all of its layers have windows; libllama gives no embeddings of such a model",
              file.paths().front());
}

Status HostedModel::NoText(const GgufFile& file) {
  return Fail(Errc::kUnsupported,
              "{}: libllama remembers no earlier tokens for this model (an encoder, or one that "
              "gives embeddings), so it writes no text",
              file.paths().front());
}

Status HostedModel::MakeContext(const GgufFile& file, const Shape& shape) {
  llama_context_params params = llama_context_default_params();
  params.n_ctx = shape.n_cells;
  params.n_batch = params.n_ubatch = shape.chunk;
  n_places_ = has_states() ? shape.n_places_of_states : shape.n_places;
  params.n_seq_max = n_places_;
  params.n_outputs_max = shape.outputs;
  params.n_threads = params.n_threads_batch = static_cast<int32_t>(shape.threads);
  params.cb_eval = GraphHooks::OnNode;
  params.cb_eval_user_data = &hooks_;
  params.abort_callback = GraphHooks::Aborts;
  params.abort_callback_data = &hooks_;
  params.type_k = params.type_v = GgmlType(shape.kv_type);
  params.offload_kqv = false;
  params.op_offload = false;
  params.kv_unified = true;  // forks share cells
  params.swa_full = true;    // windows can be cut back
  params.embeddings = shape.embeds;
  // Its sums in F16 would depend on the texts beside a text, by 1e-4 of a vector.
  if (shape.embeds) params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  params.no_perf = true;
  ReturnFreedMemory();
  resident_before_ = ResidentMemory();
  const uint64_t heap = HeapBytes();
  const ContextMemory counted;
  std::string why;
  context_.reset(ContextByLlama(*model_, params, why));
  if (context_ == nullptr) {
    return Fail(Errc::kNoMemory,
                "libllama cannot make a context of {} positions ({}); lower --ctx or --chunk",
                shape.n_cells, why);
  }
  if (memory() == nullptr && !shape.embeds) return NoText(file);
  const uint64_t taken = HeapBytes() - std::min(heap, HeapBytes());
  memory_bytes_ = counted.cleared_bytes();
  work_bytes_ = counted.buffer_bytes() - std::min(counted.buffer_bytes(), memory_bytes_);
  graph_bytes_ = taken - std::min(taken, counted.buffer_bytes());
  return {};
}

bool HostedModel::is_mapped(const MappedTensor& tensor) const {
  const Extent& extent = tensor.info->extent;
  return std::ranges::any_of(ranges_, [&](const MappedRange& range) {
    return range.file == extent.file && tensor.data >= range.begin &&
           tensor.data + extent.length <= range.begin + range.length &&
           range.offset + static_cast<uint64_t>(tensor.data - range.begin) == extent.offset;
  });
}

// Checks that libllama uses each tensor at its place in the mapped file; else no read would reach
// it.
Status HostedModel::CheckAddresses() const {
  const auto check = [&](std::span<const MappedTensor> tensors) -> Status {
    for (const MappedTensor& tensor : tensors) {
      if (is_mapped(tensor)) continue;
      return Fail(Errc::kUnsupported, "libllama does not use {} as it lies in the file",
                  tensor.info->name);
    }
    return {};
  };
  TRY_STATUS(check(graph_.dense));
  TRY_STATUS(check(graph_.tables));
  for (const ExpertGroup& group : graph_.groups) {
    TRY_STATUS(check(group.matrices));
    if (group.matrices.size() <= kMatrices) continue;
    return Fail(Errc::kUnsupported, "{}: {} matrices follow one choice of experts, and {} can",
                group.matrices.front().info->name, group.matrices.size(), kMatrices);
  }
  return {};
}

// Tensors that lie side by side are read together, so that no page is read twice.
std::vector<HostedModel::DenseRun> HostedModel::DenseRuns() const {
  std::vector<MappedTensor> tensors = graph_.dense;
  std::ranges::copy_if(graph_.tables, std::back_inserter(tensors),
                       [](const MappedTensor& table) { return !StaysInFile(table); });
  std::ranges::sort(tensors, {}, &MappedTensor::data);
  std::vector<DenseRun> runs;
  for (const MappedTensor& tensor : tensors) {
    const Extent& extent = tensor.info->extent;
    const Window window = CoveringWindow(extent, PageBytes());
    std::byte* const begin = tensor.data - window.residue;
    const bool follows = !runs.empty() && runs.back().from.file == extent.file &&
                         begin <= runs.back().begin + runs.back().length;
    if (!follows) runs.push_back({.begin = begin, .from = {extent.file, window.offset, 0}});
    DenseRun& run = runs.back();
    const auto before = static_cast<uint64_t>(begin - run.begin);
    run.length = std::max(run.length, before + window.length);
    run.from.length = std::max(run.from.length, before + window.residue + extent.length);
  }
  return runs;
}

Result<std::unique_ptr<HostedModel>> HostedModel::Open(const GgufFile& file, const Shape& shape) {
  std::unique_ptr<HostedModel> opened(new HostedModel());
  TRY_STATUS(opened->Load(file, shape));
  TRY_STATUS(opened->MakeContext(file, shape));
  LearningPass pass(file, opened->hooks_);
  TRY(opened->graph_, pass.Learn(opened->context(), std::min(kManyRows, shape.chunk)));
  if (shape.embeds) opened->work_bytes_ += LogitsBytes(*opened, shape.outputs);
  opened->work_bytes_ += TouchedOfGraphs(opened->graph_bytes_, opened->graph_.nodes) +
                         opened->ScratchBytes(shape.chunk);
  TRY_STATUS(opened->CheckAddresses());
  return opened;
}

uint64_t HostedModel::ScratchBytes(uint32_t chunk) const {
  int64_t widest = 0;
  for (const MappedTensor& tensor : graph_.dense) widest = std::max(widest, tensor.info->ne[0]);
  for (const ExpertGroup& group : graph_.groups) {
    for (const MappedTensor& matrix : group.matrices) {
      widest = std::max(widest, matrix.info->ne[0] * group.n_used);
    }
  }
  return uint64_t{chunk} * static_cast<uint64_t>(widest) * 2 + kScratchMargin;
}

uint32_t HostedModel::n_vocab() const {
  return static_cast<uint32_t>(llama_vocab_n_tokens(llama_model_get_vocab(model_.get())));
}
uint32_t HostedModel::n_ctx_train() const {
  return static_cast<uint32_t>(llama_model_n_ctx_train(model_.get()));
}
uint32_t HostedModel::n_embd() const {
  return static_cast<uint32_t>(llama_model_n_embd_out(model_.get()));
}
bool HostedModel::has_states() const {
  return llama_model_is_recurrent(model_.get()) || llama_model_is_hybrid(model_.get());
}

uint32_t HostedModel::n_window() const {
  return static_cast<uint32_t>(std::max(llama_model_n_swa(model_.get()), 0));
}

uint64_t HostedModel::whole_bytes() const {
  uint64_t bytes = 0;
  for (const MappedTensor& tensor : graph_.dense) bytes += tensor.info->extent.length;
  return bytes;
}

uint64_t HostedModel::dense_bytes() const {
  uint64_t bytes = whole_bytes();
  for (const MappedTensor& table : graph_.tables) {
    if (!StaysInFile(table)) bytes += table.info->extent.length;
  }
  return bytes;
}

std::vector<MappedTensor> HostedModel::tables_in_file() const {
  std::vector<MappedTensor> tables;
  std::ranges::copy_if(graph_.tables, std::back_inserter(tables), StaysInFile);
  return tables;
}

Status HostedModel::LoadDense(ReadQueue& queue) {
  if (queue.block() > PageBytes()) {
    return Fail(Errc::kUnsupported,
                "the hosted engine reads pages of {} bytes; this disk has blocks of {}",
                PageBytes(), queue.block());
  }
  uint64_t tag = 0;
  for (const DenseRun& run : DenseRuns()) {
    TRY_STATUS(LayOver({run.begin, run.length}));
    queue.Enqueue({.from = run.from, .landing = {run.begin, run.length}, .tag = tag++});
  }
  std::vector<ExtentDone> done;
  while (!queue.idle()) queue.Wait(done);
  for (const ExtentDone& read : done) {
    if (read.error) return std::unexpected(*read.error);
  }
  return {};
}

}  // namespace moestro
