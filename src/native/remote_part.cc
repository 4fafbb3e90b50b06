// SPDX-License-Identifier: MIT
// Remote hosts among the devices beside the CPU.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "base/bytes.h"
#include "base/log.h"
#include "forward/experts/device_products.h"
#include "native/device_part.h"
#include "native/expert_biases.h"
#include "remote/remote_launcher.h"
#include "remote/resolve_host.h"
#include "remote/worker_messages.h"

namespace moestro {
namespace {

// A worker's process: code, libraries, heap (35 to 45 MiB were measured).
constexpr uint64_t kWorkerProcess = 48 * kMiB;

LaunchShape RemoteShapeOf(const OpenedModel& opened) {
  const ModelSpec& spec = opened.model.spec;
  LaunchShape shape{.n_embd = spec.n_embd_expert(),
                    .activation = spec.experts.activation,
                    .most_pairs = kWorkerPairs,
                    .n_used = spec.router.n_used,
                    .is_exact = opened.options.device.remote.is_exact()};
  for (const CopyForm& form : opened.catalog.forms) shape.n_ff = std::max(shape.n_ff, form.n_ff);
  return shape;
}

bool HasBiases(const OpenedModel& opened) {
  return std::ranges::any_of(BiasShapeOf(opened.model).has,
                             [](const auto& layer) { return std::ranges::contains(layer, true); });
}

WorkerSetup SetupFor(const OpenedModel& opened, const std::string& address, uint64_t bytes) {
  WorkerSetup setup{.bytes = bytes, .shape = RemoteShapeOf(opened)};
  std::memcpy(setup.endpoint.data(), address.data(),
              std::min(address.size(), setup.endpoint.size() - 1));
  const ExpertCatalog& catalog = opened.catalog;
  setup.n_forms = static_cast<uint32_t>(catalog.forms.size());
  std::ranges::copy(catalog.forms, setup.forms.begin());
  for (const ExpertCatalog::Layer& layer : catalog.layers) {
    for (const std::vector<ExpertCopy>& copies : layer.experts) {
      for (const ExpertCopy& copy : copies) ++setup.experts[copy.form];
    }
  }
  return setup;
}

}  // namespace

Status DevicePart::AddRemotes() {
  const RemoteOptions& remote = opened_.options.device.remote;
  if (remote.hosts.empty()) return {};
  if (HasBiases(opened_)) {
    return Fail(Errc::kUnsupported, "--remote: this model's experts have biases, which hosts lack");
  }
  if (remote.is_exact() && !HasExactForm(opened_.model.spec.experts.activation)) {
    return Fail(Errc::kUnsupported,
                "--remote: the activation of this model's experts has no form that gives the same "
                "bits there; --remote-inexact takes the other");
  }
  if (opened_.catalog.forms.size() > kMostWorkerForms) {
    return Fail(Errc::kUnsupported, "--remote: this model's experts have {} forms; {} are the most",
                opened_.catalog.forms.size(), kMostWorkerForms);
  }
  for (const RemoteHost& host : remote.hosts) {
    const Status opened = OpenRemote(host);
    if (opened) continue;
    if (opened.error().code == Errc::kUsage) return opened;
    LogWarning("{}; this machine goes on without it", opened.error().message);
  }
  return {};
}

Status DevicePart::OpenRemote(const RemoteHost& host) {
  const RemoteOptions& remote = opened_.options.device.remote;
  TRY(const std::string address, ResolveHost(host, remote.takes_public));
  TRY(auto worker, WorkerProcess::Start(remote.program, host.address(),
                                        SetupFor(opened_, address, host.bytes), {}));
  const DeviceInfo info{.name = host.address(),
                        .description = "remote host",
                        .backend = "RPC",
                        .kind = DeviceKind::kRemote,
                        .memory_free = worker->ready().memory_free};
  const std::span slots = std::span(worker->ready().slots).first(opened_.catalog.forms.size());
  auto used = std::make_unique<UsedDevice>();
  used->plan.info = info;
  for (const uint64_t n : slots) used->computes.push_back(n > 0);
  used->slots.assign(slots.begin(), slots.end());
  used->worker = std::move(worker);
  used_.push_back(std::move(used));
  return {};
}

Status DevicePart::TakeRemoteSlots(UsedDevice& host) const {
  const LaunchShape shape = RemoteShapeOf(opened_);
  host.experts = std::make_unique<DeviceExperts>(
      std::make_unique<RemoteLauncher>(*host.worker, opened_.catalog.forms, shape),
      opened_.catalog);
  host.plan.bytes = DeviceLauncher::WorkBytes(shape);
  for (size_t f = 0; f < host.slots.size(); ++f) {
    host.plan.slots += host.slots[f];
    host.plan.bytes += DevicePools::BytesFor(opened_.catalog.forms[f], host.slots[f]);
  }
  return {};
}

// Of each worker: its process, what both share, and a matrix on its way from the disk.
void DevicePart::AddRemotesTo(FixedBytes& fixed) const {
  uint64_t matrix = 0;
  for (const PoolShape& pool : opened_.catalog.pools) {
    for (const uint64_t bytes : pool.slice_bytes) matrix = std::max(matrix, bytes);
  }
  const uint64_t shared = WorkerLayout(RemoteShapeOf(opened_)).all();
  fixed.work += opened_.options.device.remote.hosts.size() * (kWorkerProcess + shared + matrix);
}

}  // namespace moestro
