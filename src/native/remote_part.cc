// SPDX-License-Identifier: MIT
// Remote hosts among the devices beside the CPU.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/log.h"
#include "forward/experts/device_products.h"
#include "native/catalog.h"
#include "native/device_part.h"
#include "native/expert_biases.h"
#include "native/remote_upload.h"
#include "remote/remote_launcher.h"
#include "remote/resolve_host.h"
#include "remote/worker_messages.h"

namespace moestro {
namespace {

// Bytes of a worker's process: code, libraries, heap (35 to 45 MiB were measured).
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

bool HasBiases(const ModelFile& model) {
  return std::ranges::any_of(BiasShapeOf(model).has,
                             [](const auto& layer) { return std::ranges::contains(layer, true); });
}

WorkerSetup SetupFor(const OpenedModel& opened, const std::string& address, uint64_t bytes) {
  WorkerSetup setup{.bytes = bytes, .shape = RemoteShapeOf(opened)};
  std::memcpy(setup.endpoint.data(), address.data(),
              std::min(address.size(), setup.endpoint.size() - 1));
  const ExpertCatalog& catalog = opened.catalog;
  setup.n_forms = static_cast<uint32_t>(catalog.forms.size());
  std::ranges::copy(catalog.forms, setup.forms.begin());
  std::ranges::copy(CopiesByForm(catalog), setup.experts.begin());
  return setup;
}

}  // namespace

Status CheckForRemotes(const ModelFile& model, const RemoteOptions& remote) {
  if (HasBiases(model)) {
    return Fail(Errc::kUnsupported, "--remote: this model's experts have biases, which hosts lack");
  }
  if (remote.is_exact() && !HasExactForm(model.spec.experts.activation)) {
    return Fail(Errc::kUnsupported,
                "--remote: the activation of this model's experts has no form that gives the same "
                "bits there; --remote-inexact takes the other");
  }
  return {};
}

Status DevicePart::AddRemotes() {
  const RemoteOptions& remote = opened_.options.device.remote;
  if (remote.hosts.empty()) return {};
  TRY_STATUS(CheckForRemotes(opened_.model, remote));
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

Result<std::unique_ptr<WorkerProcess>> DevicePart::Reach(const RemoteHost& host) const {
  const RemoteOptions& remote = opened_.options.device.remote;
  TRY(const std::string address, ResolveHost(host, remote.takes_public));
  return WorkerProcess::Start(remote.program, host.address(),
                              SetupFor(opened_, address, host.bytes), {});
}

Result<std::unique_ptr<WorkerProcess>> DevicePart::ReachAgain(const UsedDevice& host) const {
  TRY(auto worker, Reach(host.host));
  const std::span slots = std::span(worker->ready().slots).first(host.slots.size());
  for (size_t f = 0; f < slots.size(); ++f) {
    if (slots[f] < host.slots[f]) {
      return Fail(Errc::kDevice, "the remote host {} has less memory than before", worker->host());
    }
  }
  if (host.known.empty()) return worker;
  TRY(const std::vector<float> now, KnownResults(*worker));
  if (now == host.known) return worker;
  return Fail(Errc::kDevice, "the remote host {} computes otherwise than before", worker->host());
}

// Results for known rows. Stage, for an expert of each form: x [rows][n_embd] -> y [rows][n_embd].
Result<std::vector<float>> DevicePart::KnownResults(WorkerProcess& worker) const {
  constexpr uint32_t kRows = 4;
  const ExpertCatalog& catalog = opened_.catalog;
  RemoteLauncher launcher(worker, catalog.forms, RemoteShapeOf(opened_));
  TRY(const ExtentReader file, ExtentReader::Open(opened_.paths()));
  std::vector<float> x(kRows * size_t{launcher.shape().n_embd});
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i));
  std::vector<float> all;
  for (uint32_t form = 0; form < catalog.forms.size(); ++form) {
    if (worker.ready().slots[form] == 0) continue;
    TRY(const ExpertKey key, AnyExpertOf(catalog, form));
    for (const Matrix matrix : {Matrix::kGate, Matrix::kUp, Matrix::kDown}) {
      if (launcher.BytesOf(form, matrix) == 0) continue;
      TRY(const ExtentBytes read, file.Read(catalog.copy(key).matrix(matrix)));
      TRY_STATUS(launcher.Write({.form = form, .matrix = matrix, .slot = {}}, read.bytes));
    }
    const LayerPlan plan{.n_rows = kRows};
    std::vector<Launcher::Pair> pairs;
    for (uint32_t r = 0; r < kRows; ++r) pairs.push_back({.pair = r, .row = r, .slot = {}});
    std::vector<float> y(x.size());
    launcher.Begin(plan, x.data(), y.data());
    TRY_STATUS(launcher.Launch(form, pairs));
    TRY_STATUS(launcher.Finish());
    all.append_range(y);
  }
  return all;
}

Status DevicePart::OpenRemote(const RemoteHost& host) {
  TRY(auto worker, Reach(host));
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
  used->host = host;
  if (opened_.options.device.remote.is_exact()) {
    TRY(used->known, KnownResults(*worker));
  }
  used->worker = std::move(worker);
  used_.push_back(std::move(used));
  return {};
}

Status DevicePart::TakeRemoteSlots(UsedDevice& host) const {
  const LaunchShape shape = RemoteShapeOf(opened_);
  auto launcher = std::make_unique<RemoteLauncher>(*host.worker, opened_.catalog.forms, shape);
  host.launcher = launcher.get();
  host.experts = std::make_unique<DeviceExperts>(std::move(launcher), opened_.catalog);
  host.plan.bytes = DeviceLauncher::WorkBytes(shape);
  for (size_t f = 0; f < host.slots.size(); ++f) {
    host.plan.slots += host.slots[f];
    host.plan.bytes += DevicePools::BytesFor(opened_.catalog.forms[f], host.slots[f]);
  }
  return {};
}

// Adds the memory of each worker: its process, the memory shared with it, a matrix on the way from
// the disk, and the known results of its experts.
void DevicePart::AddRemotesTo(FixedBytes& fixed) const {
  uint64_t matrix = 0;
  for (const PoolShape& pool : opened_.catalog.pools) {
    for (const uint64_t bytes : pool.slice_bytes) matrix = std::max(matrix, bytes);
  }
  const LaunchShape shape = RemoteShapeOf(opened_);
  const uint64_t shared = WorkerLayout(shape).all();
  const uint64_t known =
      shape.is_exact ? RemoteUpload::KnownBytes(opened_.model.id.shape, shape) : 0;
  fixed.work +=
      opened_.options.device.remote.hosts.size() * (kWorkerProcess + shared + matrix + known);
}

}  // namespace moestro
