// SPDX-License-Identifier: MIT
#include "native/remote_upload.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/caught.h"
#include "base/clock.h"
#include "base/log.h"
#include "remote/worker_messages.h"

namespace moestro {
Result<std::unique_ptr<RemoteUpload>> RemoteUpload::Begin(
    const ExpertCatalog& catalog, const std::vector<std::string>& paths, WorkerProcess& worker,
    std::vector<DeviceTier::Promotion> experts) {
  TRY(ExtentReader reader, ExtentReader::Open(paths));
  std::unique_ptr<RemoteUpload> upload(
      new RemoteUpload(catalog, std::move(reader), worker, std::move(experts)));
  upload->thread_ = std::jthread([its = upload.get()] { its->Run(); });
  return upload;
}

RemoteUpload::~RemoteUpload() { ends_ = true; }

std::vector<RemoteUpload::Landed> RemoteUpload::TakeLanded() {
  if (!is_done_) return {};
  const std::lock_guard lock(mutex_);
  return std::exchange(landed_, {});
}

// Every expert lands, or is said not to.
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
  for (const Matrix matrix : {Matrix::kGate, Matrix::kUp, Matrix::kDown}) {
    TRY_STATUS(BringMatrices(matrix, layer));
  }
  return {};
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
  for (const DeviceTier::Promotion& one : layer) {
    const ExpertCopy& copy = catalog_.copy(one.key);
    const Extent extent = copy.matrix(matrix);
    if (extent.length == 0) continue;
    const bool follows = before != nullptr && before->form == copy.form &&
                         slot_before + 1 == static_cast<uint32_t>(one.slot.value);
    if (!follows) TRY_STATUS(send());
    before = &copy;
    slot_before = static_cast<uint32_t>(one.slot.value);
    TRY(const ExtentBytes read, reader_.Read(extent));
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
