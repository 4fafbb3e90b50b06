// SPDX-License-Identifier: MIT
#include "remote/remote_upload.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "base/terminal.h"
#include "base/work_limit.h"
#include "compute/expert_kernel.h"
#include "compute/product_node.h"
#include "remote/worker.h"

namespace moestro {
namespace {

size_t ActivationBytes(const FormKernels& k, Matrix matrix) {
  return k.kernel[static_cast<size_t>(matrix)].activation_bytes(matrix == Matrix::kDown ? k.n_ff
                                                                                        : k.n_embd);
}

}  // namespace

std::vector<float> KnownRow(uint32_t n_embd) {
  std::vector<float> row(n_embd);
  for (size_t i = 0; i < row.size(); ++i) row[i] = std::sin(static_cast<float>(i));
  return row;
}

// FNV-1a over the bits.
uint64_t DigestOf(std::span<const float> result) {
  uint64_t digest = 0xcbf29ce484222325;
  for (const float value : result) {
    digest = (digest ^ std::bit_cast<uint32_t>(value)) * 0x100000001b3;
  }
  return digest;
}

Result<std::unique_ptr<RemoteUpload>> RemoteUpload::Begin(
    const RemoteModel& model, WorkerProcess& worker, std::vector<DeviceTier::Promotion> experts) {
  TRY(ExtentReader reader, ExtentReader::Open(model.paths));
  std::unique_ptr<RemoteUpload> upload(
      new RemoteUpload(model, std::move(reader), worker, std::move(experts)));
  if (model.shape.is_exact) {
    upload->known_row_ = KnownRow(model.shape.n_embd);
    size_t largest = 0;
    for (const FormKernels& kernels : model.kernels) {
      for (const Matrix matrix : {kernels.first(), Matrix::kUp, Matrix::kDown}) {
        largest = std::max(largest, ActivationBytes(kernels, matrix));
      }
    }
    TRY(upload->quantised_, HostMemory::Allocate(largest));
  }
  upload->thread_ = std::jthread([its = upload.get()] { its->Run(); });
  return upload;
}

RemoteUpload::~RemoteUpload() { ends_ = true; }

std::vector<RemoteUpload::Landed> RemoteUpload::TakeLanded() {
  if (!is_done_) return {};
  const std::lock_guard lock(mutex_);
  return std::exchange(landed_, {});
}

std::vector<KnownResult> RemoteUpload::TakeKnown() {
  if (!is_done_) return {};
  const std::lock_guard lock(mutex_);
  return std::exchange(known_, {});
}

// Stage: an expert's matrix times the known row, or, for the down matrix, times the joined products
// of gate and up.
void RemoteUpload::Multiply(const FormKernels& k, Matrix matrix, std::span<const std::byte> weights,
                            Products& products) {
  const auto m = static_cast<size_t>(matrix);
  const bool is_down = matrix == Matrix::kDown;
  products.gate.resize(k.n_ff);  // zeros without a gate
  std::vector<float>& out = is_down ? result_ : matrix == Matrix::kUp ? products.up : products.gate;
  out.resize(is_down ? k.n_embd : k.n_ff);
  if (is_down) Join(model_.shape.activation, products.up, products.gate);
  const std::vector<float>& in = is_down ? products.gate : known_row_;
  const ExpertKernel& kernel = k.kernel[m];
  kernel.quantise(kernel, in.data(), quantised_.data(), static_cast<int64_t>(in.size()));
  const std::byte* const activations = quantised_.data();
  float* const to = out.data();
  kernel.multiply(kernel, {.rows = weights.data(),
                           .row_bytes = k.row_bytes[m],
                           .n_in = static_cast<int64_t>(in.size()),
                           .n_rows = static_cast<int64_t>(out.size()),
                           .activations = &activations,
                           .out = &to,
                           .n_tokens = 1});
}

// Brings the layers. Every expert is reported as landed, or, after an error, as not there.
void RemoteUpload::Run() {
  const double start = SteadySeconds();
  Status status;
  std::span<const DeviceTier::Promotion> left = experts_;
  while (!left.empty()) {
    const auto other = std::ranges::find_if(left, [&](const DeviceTier::Promotion& one) {
      return one.key.layer != left.front().key.layer;
    });
    const auto layer = left.first(static_cast<size_t>(other - left.begin()));
    left = left.subspan(layer.size());
    if (status) {
      status = Caught([&] { return Bring(layer); },
                      [](std::string_view why) -> Status { return Fail(Errc::kIo, "{}", why); });
      const bool is_news = !status && !ends_ && status.error().code != Errc::kDevice;
      if (is_news)
        LogWarning("{}; {} gets no more experts", status.error().message, worker_.host());
    }
    const std::lock_guard lock(mutex_);
    for (const DeviceTier::Promotion& one : layer) {
      landed_.push_back({.expert = one, .is_there = status.has_value()});
    }
  }
  if (status) {
    LogInfo("the remote host {} has its {} experts, after {:.1f} s", worker_.host(),
            experts_.size(), SteadySeconds() - start);
  }
  is_done_ = true;
}

Status RemoteUpload::Bring(std::span<const DeviceTier::Promotion> layer) {
  products_.assign(layer.size(), {});
  for (const Matrix matrix : {Matrix::kGate, Matrix::kUp, Matrix::kDown}) {
    TRY_STATUS(BringMatrices(matrix, layer));
  }
  return {};
}

// Keeps a known result. One with NaN or infinity is left out: such bits may differ without an
// error.
void RemoteUpload::Keep(const DeviceTier::Promotion& expert) {
  if (!std::ranges::all_of(result_, [](float value) { return std::isfinite(value); })) return;
  const std::lock_guard lock(mutex_);
  known_.push_back({.form = model_.catalog.copy(expert.key).form,
                    .slot = expert.slot,
                    .digest = DigestOf(result_)});
}

uint64_t RemoteUpload::BytesFor(const RemoteModel& model) {
  uint64_t matrix = 0;
  for (const PoolShape& pool : model.catalog.pools) {
    for (const uint64_t bytes : pool.slice_bytes) matrix = std::max(matrix, bytes);
  }
  if (!model.shape.is_exact) return matrix;
  constexpr uint64_t kOfAnExpert = 128;  // lists here and in the transport
  const uint64_t products = uint64_t{2} * model.shape.n_ff * sizeof(float);
  return matrix + model.moe.experts() * kOfAnExpert + model.moe.n_expert * products;
}

// Stage: matrices of consecutive slots, one behind the other, in pieces of kUploadBytes.
Status RemoteUpload::BringMatrices(Matrix matrix, std::span<const DeviceTier::Promotion> layer) {
  WriteMessage piece{.matrix = matrix};
  const auto send = [&]() -> Status {
    if (piece.bytes == 0) return {};
    if (ends_) return Fail(Errc::kInterrupted, "stopped on request");
    TRY_STATUS(worker_.Write(piece));
    piece.bytes = 0;
    return {};
  };
  const ExpertCopy* before = nullptr;
  uint32_t slot_before = 0;
  for (size_t i = 0; i < layer.size(); ++i) {
    const DeviceTier::Promotion& one = layer[i];
    const ExpertCopy& copy = model_.catalog.copy(one.key);
    const Extent extent = copy.matrix(matrix);
    if (extent.length == 0) continue;
    const bool follows = before != nullptr && before->form == copy.form &&
                         slot_before + 1 == static_cast<uint32_t>(one.slot.value);
    if (!follows) TRY_STATUS(send());
    before = &copy;
    slot_before = static_cast<uint32_t>(one.slot.value);
    TRY(const ExtentBytes read, reader_.Read(extent));
    if (!known_row_.empty()) {
      Multiply(model_.kernels[copy.form], matrix, read.bytes, products_[i]);
      if (matrix == Matrix::kDown) Keep(one);
    }
    for (uint64_t done = 0; done < read.bytes.size();) {
      if (piece.bytes == kUploadBytes) TRY_STATUS(send());
      if (piece.bytes == 0) {
        piece.form = copy.form;
        piece.slot = slot_before;
        piece.offset = done;
      }
      const uint64_t n = std::min(read.bytes.size() - done, kUploadBytes - piece.bytes);
      std::memcpy(worker_.upload() + piece.bytes, read.bytes.data() + done, n);
      piece.bytes += n;
      done += n;
    }
  }
  return send();
}

}  // namespace moestro
