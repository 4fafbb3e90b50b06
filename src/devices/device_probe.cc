// SPDX-License-Identifier: MIT
#include "devices/device_probe.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <utility>

#include "base/distribution.h"
#include "base/wait_word.h"
#include "compute/expert_kernel.h"
#include "compute/host_memory.h"
#include "compute/product_node.h"

namespace moestro {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr size_t kRepeats = 5;
constexpr uint32_t kMostRows = 64;     // rows that are measured, at most
constexpr double kLeastBorder = 1e-6;  // seconds: a border is never free
constexpr uint32_t kMostAtOnce = 8;    // experts of a launch, at most
// More rows are not measured once fewer rows take this many seconds.
constexpr double kLongRun = 0.1;

double SecondsSince(SteadyClock::time_point start) {
  return std::chrono::duration<double>(SteadyClock::now() - start).count();
}

size_t MatrixBytes(const FormKernels& k, size_t m) {
  return k.row_bytes[m] * (static_cast<Matrix>(m) == Matrix::kDown ? k.n_embd : k.n_ff);
}

// The median of kRepeats times, or of fewer if they take long, after one call that warms up. `once`
// gives a Result<double>.
template <class Once>
Result<double> MedianOf(Once&& once) {
  constexpr double kLong = 0.05;
  std::vector<double> seconds;
  TRY(double took, once());
  double all = took;
  do {
    TRY(took, once());
    seconds.push_back(took);
    all += took;
  } while (seconds.size() < kRepeats && all < kLong);
  return Median(std::move(seconds));
}

// y: [rows][n_out].
void AddBias(std::span<const float> bias, std::span<float> y) {
  if (bias.empty()) return;
  for (size_t i = 0; i < y.size(); ++i) y[i] += bias[i % bias.size()];
}

// A plan of `rows` rows with `experts` experts each, expert by expert, all on the device.
LayerPlan PlanOf(ExpertKey key, uint32_t experts, uint32_t rows, uint32_t slots) {
  LayerPlan plan{.layer = key.layer, .n_rows = rows, .n_used = experts};
  for (uint32_t e = 0; e < experts; ++e) {
    plan.experts.push_back({.key = key,
                            .place = Place::kDevice,
                            .slot = SlotId{e % slots},
                            .first_pair = e * rows,
                            .n_pairs = rows});
    for (uint32_t r = 0; r < rows; ++r) plan.row_of.push_back(r);
  }
  return plan;
}

}  // namespace

std::vector<float> DeviceProbe::RandomRows(uint32_t rows) const {
  std::mt19937 random(rows);
  std::normal_distribution<float> normal;
  std::vector<float> x(size_t{rows} * expert_.kernels.n_embd);
  for (float& value : x) value = normal(random);
  return x;
}

Status DeviceProbe::RunOnDevice(std::span<const float> x, uint32_t experts, uint32_t rows,
                                std::span<float> y) {
  const LayerPlan plan = PlanOf(expert_.key, experts, rows, expert_.slots);
  Status ran = device_.Begin({.plan = plan}, x.data(), y.data());
  if (ran) ran = device_.Finish();
  if (!ran) device_.Abandon();
  return ran;
}

// Computes the expert as forward/experts/layer_run.h does, with blocks of rows dealt out in turn.
Status DeviceProbe::RunOnHost(std::span<const float> x, uint32_t rows,
                              const Device::Matrices& matrices, std::span<float> y) {
  const FormKernels& k = expert_.kernels;
  const auto quantised = [&](Matrix m, const float* from, uint32_t width,
                             std::vector<const std::byte*>& each) -> Status {
    const ExpertKernel& kernel = k.kernel[static_cast<size_t>(m)];
    const size_t bytes = kernel.activation_bytes(width);
    HostMemory& memory = quantised_[static_cast<size_t>(m)];
    if (memory.size() < rows * bytes) {
      TRY(memory, HostMemory::Allocate(kRowsToTry.back() * bytes));
    }
    for (uint32_t r = 0; r < rows; ++r) {
      std::byte* to = memory.data() + r * bytes;
      kernel.quantise(kernel, from + size_t{r} * width, to, width);
      each.push_back(to);
    }
    return {};
  };
  const auto multiply = [&](Matrix m, uint32_t n_in, uint32_t n_out,
                            const std::vector<const std::byte*>& in, float* out) -> Status {
    const auto at = static_cast<size_t>(m);
    constexpr uint32_t kBlock = 32;
    TRY_STATUS(team_.Run([&](int thread, int n_threads) {
      for (uint32_t row = kBlock * static_cast<uint32_t>(thread); row < n_out;
           row += kBlock * static_cast<uint32_t>(n_threads)) {
        std::vector<float*> to;
        for (uint32_t r = 0; r < rows; ++r) to.push_back(out + size_t{r} * n_out + row);
        k.kernel[at].multiply(k.kernel[at], {.rows = matrices[at] + row * k.row_bytes[at],
                                             .row_bytes = k.row_bytes[at],
                                             .n_in = n_in,
                                             .n_rows = std::min(kBlock, n_out - row),
                                             .activations = in.data(),
                                             .out = to.data(),
                                             .n_tokens = rows});
      }
    }));
    AddBias(expert_.biases[at], {out, size_t{rows} * n_out});
    return {};
  };
  std::array<std::vector<const std::byte*>, kMatrices> in;
  std::vector<float> gate(size_t{rows} * k.n_ff);
  std::vector<float> up(gate.size());
  if (k.has_gate()) {
    TRY_STATUS(quantised(Matrix::kGate, x.data(), k.n_embd, in[0]));
    TRY_STATUS(multiply(Matrix::kGate, k.n_embd, k.n_ff, in[0], gate.data()));
  }
  TRY_STATUS(quantised(Matrix::kUp, x.data(), k.n_embd, in[1]));
  TRY_STATUS(multiply(Matrix::kUp, k.n_embd, k.n_ff, in[1], up.data()));
  Join(expert_.activation, up, gate);
  TRY_STATUS(quantised(Matrix::kDown, gate.data(), k.n_ff, in[2]));
  return multiply(Matrix::kDown, k.n_ff, k.n_embd, in[2], y.data());
}

Result<double> DeviceProbe::Difference(uint32_t rows) {
  TRY_STATUS(Landed(device_.Fill(expert_.key, SlotId{0}, expert_.matrices)));
  const std::vector<float> x = RandomRows(rows);
  std::vector<float> there(x.size());
  std::vector<float> here(x.size());
  TRY_STATUS(RunOnDevice(x, 1, rows, there));
  TRY_STATUS(RunOnHost(x, rows, expert_.matrices, here));
  double missed = 0.0;
  double all = 0.0;
  for (size_t i = 0; i < here.size(); ++i) {
    const double d = static_cast<double>(there[i]) - static_cast<double>(here[i]);
    missed += d * d;
    all += static_cast<double>(here[i]) * static_cast<double>(here[i]);
  }
  // Weights that are all zero give no share; then only results of zero agree.
  const double share = all > 0.0 ? missed / all : missed;
  // NaN is no agreement.
  return std::isnan(share) ? std::numeric_limits<double>::infinity() : share;
}

Result<double> DeviceProbe::DeviceSeconds(uint32_t experts, uint32_t rows) {
  const std::vector<float> x = RandomRows(rows);
  std::vector<float> y(size_t{experts} * rows * expert_.kernels.n_embd);
  return MedianOf([&]() -> Result<double> {
    const auto start = SteadyClock::now();
    TRY_STATUS(RunOnDevice(x, experts, rows, y));
    return SecondsSince(start);
  });
}

Result<bool> DeviceProbe::AreLike(const LatencyModel& kept) {
  const DeviceCosts& costs = kept.devices.front();
  const double promised = costs.launch + costs.compute.Seconds(expert_.bytes);
  const std::vector<float> x = RandomRows(1);
  std::vector<float> y(x.size());
  double quickest = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < kRepeats && (i == 0 || quickest < kLongRun / kRepeats); ++i) {
    const auto start = SteadyClock::now();
    TRY_STATUS(RunOnDevice(x, 1, 1, y));
    quickest = std::min(quickest, SecondsSince(start));
  }
  return promised <= kUnlike * quickest && quickest <= kUnlike * promised;
}

Status DeviceProbe::MakeCopies(uint64_t scratch) {
  n_copies_ = std::max<size_t>(1, std::min(scratch, kScratch) / expert_.bytes);
  TRY(copies_, expert_.memory.allocate(n_copies_ * expert_.bytes));
  std::byte* to = copies_.data();
  for (size_t i = 0; i < n_copies_; ++i) {
    for (size_t m = 0; m < kMatrices; ++m) {
      const size_t bytes = MatrixBytes(expert_.kernels, m);
      if (bytes == 0) continue;  // experts lack that matrix
      std::memcpy(to, expert_.matrices[m], bytes);
      to += bytes;
    }
  }
  return {};
}

// Gives another copy of the expert each time, so that weights come from memory.
Device::Matrices DeviceProbe::NextCopy() {
  Device::Matrices at{};
  const std::byte* copy = copies_.data() + next_copy_++ % n_copies_ * expert_.bytes;
  for (size_t m = 0; m < kMatrices; ++m) {
    at[m] = copy;
    copy += MatrixBytes(expert_.kernels, m);
  }
  return at;
}

Device::Ticket DeviceProbe::FillNext() {
  return device_.Fill(expert_.key, SlotId{next_slot_++ % expert_.slots}, NextCopy());
}

Result<double> DeviceProbe::HostOnce(std::span<const float> x, uint32_t rows, std::span<float> y) {
  const Device::Matrices at = NextCopy();
  const auto start = SteadyClock::now();
  TRY_STATUS(RunOnHost(x, rows, at, y));
  return SecondsSince(start);
}

Result<double> DeviceProbe::HostSeconds(uint32_t rows, const LayerPlan* launched) {
  const std::vector<float> x = RandomRows(rows);
  std::vector<float> y(x.size());
  if (launched == nullptr) return MedianOf([&] { return HostOnce(x, rows, y); });
  std::vector<float> there(launched->row_of.size() * expert_.kernels.n_embd);
  return MedianOf([&]() -> Result<double> {
    Status ran = device_.Begin({.plan = *launched}, x.data(), there.data());
    const Result<double> took = HostOnce(x, rows, y);
    if (ran) ran = device_.Finish();
    if (!ran) device_.Abandon();
    TRY_STATUS(ran);
    return took;
  });
}

// Waits for a copy. A copy that fails would seem to cost nothing.
Status DeviceProbe::Landed(const Device::Ticket& ticket) {
  if (device_.Wait(ticket)) return {};
  return Fail(Errc::kDevice, "a copy to the device failed");
}

Result<double> DeviceProbe::CopySeconds() {
  const Copier::Made before = device_.copies_made();
  Device::Ticket all = FillNext();
  for (size_t i = 1; i < kRepeats; ++i) all.last = FillNext().last;
  TRY_STATUS(Landed(all));
  return std::max((device_.copies_made() - before).seconds / kRepeats, 1e-9);
}

// Copies of some experts while the device computes another one.
Result<double> DeviceProbe::SecondsOfCopiesBesideLaunch() {
  constexpr uint32_t kRows = 16;
  constexpr uint32_t kCopies = 8;
  const LayerPlan plan = PlanOf(expert_.key, 1, kRows, 1);
  const std::vector<float> x = RandomRows(kRows);
  std::vector<float> y(x.size());
  return MedianOf([&]() -> Result<double> {
    const auto start = SteadyClock::now();
    Status ran = device_.Begin({.plan = plan}, x.data(), y.data());
    Device::Ticket all;
    for (uint32_t i = 0; i < kCopies; ++i) {
      const SlotId slot{1 + i % (expert_.slots - 1)};  // the launch reads slot 0
      const Device::Ticket next = device_.Fill(expert_.key, slot, NextCopy());
      if (i == 0) all.first = next.first;
      all.last = next.last;
    }
    const Status landed = Landed(all);
    if (ran) ran = device_.Finish();
    if (!ran) device_.Abandon();
    TRY_STATUS(landed);
    TRY_STATUS(ran);
    return SecondsSince(start);
  });
}

// Takes the device's own copies if they are faster beside a launch, and right.
Status DeviceProbe::ChooseCopyWay() {
  constexpr auto kBlocking = Transport::CopyWay::kBlocking;
  // A smaller gain is within the error of measuring.
  constexpr double kGain = 0.9;
  if (device_.copy_way() != kBlocking || expert_.slots < 2) return {};
  if (!device_.SetCopyWay(expert_.own_copies)) return {};
  TRY(const double own, SecondsOfCopiesBesideLaunch());
  TRY(const double difference, Difference(1));
  device_.SetCopyWay(kBlocking);
  TRY(const double blocking, SecondsOfCopiesBesideLaunch());
  const bool pays = own <= kGain * blocking && difference <= kMostDifference;
  if (pays) device_.SetCopyWay(expert_.own_copies);
  return {};
}

// Measures the CPU and copies together. Enough copies are requested ahead that the copier never
// runs dry while the CPU computes.
Result<DeviceProbe::Pair> DeviceProbe::Together(const Pair& alone) {
  constexpr double kLongest = 0.2;
  constexpr double kMostCopies = 500.0;
  const auto ahead =
      static_cast<uint64_t>(std::min(2.0 * alone.host / alone.copy, kMostCopies)) + 2;
  const std::vector<float> x = RandomRows(1);
  std::vector<float> y(x.size());
  const Copier::Made before = device_.copies_made();
  uint64_t asked = 0;
  Device::Ticket all;
  Copier::Made made;
  std::vector<double> seconds;
  const auto start = SteadyClock::now();
  do {
    while (asked < made.copies / device_.copies_per_expert() + ahead) {
      const Device::Ticket next = FillNext();
      if (asked++ == 0) all.first = next.first;
      all.last = next.last;
    }
    const Result<double> took = HostOnce(x, 1, y);
    if (!took) device_.Wait(all);
    if (!took) return std::unexpected(took.error());
    seconds.push_back(*took);
    made = device_.copies_made() - before;
  } while ((seconds.size() < kRepeats || made.copies < device_.copies_per_expert()) &&
           SecondsSince(start) < kLongest);
  TRY_STATUS(Landed(all));
  Pair together{.host = Median(std::move(seconds)), .copy = alone.copy};
  if (made.copies > 0) {
    together.copy =
        made.seconds / static_cast<double>(made.bytes) * static_cast<double>(expert_.bytes);
  }
  return together;
}

// Rows to the device and back, as for a launch with rows in memory; and at a border one row more
// there and back beside a read that is made anyway. Without a device of this machine the rows count
// as part of computing.
Status DeviceProbe::MeasureRows(LatencyModel& model) {
  DeviceLink* const link = device_.link();
  if (link == nullptr) return {};
  std::vector<float> x = RandomRows(kMostRows);
  TRY(const BackendBuffer there,
      BackendBuffer::On(link->device().backend(), x.size() * sizeof(float)));
  GraphRoom room(1);
  room.Begin();
  ggml_tensor* rows =
      ggml_new_tensor_1d(room.context(), GGML_TYPE_F32, static_cast<int64_t>(x.size()));
  there.Place(rows, 0);
  const auto crossing = [&](const Border& border) {
    return MedianOf([&]() -> Result<double> {
      const auto start = SteadyClock::now();
      TRY_STATUS(link->Cross(border));
      return SecondsSince(start);
    });
  };
  const auto there_and_back = [&](size_t values) {
    const std::span its = std::span(x).first(values);
    return Border{.writes = {{.to = rows, .from = std::as_bytes(its)}},
                  .reads = {{.from = rows, .to = std::as_writable_bytes(its)}}};
  };
  Border border = there_and_back(expert_.kernels.n_embd);
  TRY(const double one, crossing(border));
  TRY(const double all, crossing(there_and_back(x.size())));
  model.devices.front().pair = std::max(all - one, 0.0) / (kMostRows - 1);
  border.reads.push_back(border.reads.front());
  TRY(const double with_row, crossing(border));
  border = {.reads = {border.reads.front()}};
  TRY(const double without, crossing(border));
  model.border = std::max(with_row - without, kLeastBorder);
  return {};
}

// The calls that begin a launch, and that collect its results when the device has long ended.
// `longest`: no launch takes longer.
Status DeviceProbe::MeasureCalls(const LayerPlan& launched, double longest, DeviceCosts& costs) {
  const std::vector<float> x = RandomRows(1);
  std::vector<float> there(launched.row_of.size() * expert_.kernels.n_embd);
  std::vector<double> begins;
  TRY(costs.calls, MedianOf([&]() -> Result<double> {
        const auto start = SteadyClock::now();
        Status ran = device_.Begin({.plan = launched}, x.data(), there.data());
        double seconds = begins.emplace_back(SecondsSince(start));
        while (SecondsSince(start) < longest) CpuRelax();
        const auto ended = SteadyClock::now();
        if (ran) ran = device_.Finish();
        seconds += SecondsSince(ended);
        if (!ran) device_.Abandon();
        TRY_STATUS(ran);
        return seconds;
      }));
  costs.begin = std::min(Median(std::move(begins)), costs.calls);
  return {};
}

Result<LatencyModel> DeviceProbe::Measure(uint64_t scratch) {
  TRY_STATUS(MakeCopies(scratch));
  TRY_STATUS(ChooseCopyWay());
  LatencyModel model{.devices = {{}}};
  DeviceCosts& costs = model.devices.front();
  costs.is_queued = device_.copy_way() != Transport::CopyWay::kBlocking;
  for (uint32_t i = 0; i < expert_.slots && i < kMostAtOnce; ++i) TRY_STATUS(Landed(FillNext()));
  // The cost of each further expert of a launch, and the rest: the cost of a launch.
  const uint32_t many = std::min(expert_.slots, kMostAtOnce);
  TRY(const double one, DeviceSeconds(1, 1));
  double each = one;
  if (many > 1) {
    TRY(const double all, DeviceSeconds(many, 1));
    each = std::max(all - one, 0.05 * one) / (many - 1);
  }
  each = std::min(each, one);
  costs.launch = one - each;
  TRY_STATUS(MeasureRows(model));
  std::vector<CostSample> host;
  std::vector<CostSample> device{{expert_.bytes, 1, each}};
  for (const uint32_t rows : {1U, 4U, 16U, kMostRows}) {
    TRY(const double here, HostSeconds(rows));
    host.push_back({expert_.bytes, rows, std::max(here, 1e-9)});
    if (rows == 1 || device.back().seconds * 4 > kLongRun) continue;
    TRY(const double there, DeviceSeconds(1, rows));
    const double crossing = costs.pair * (rows - 1);
    device.push_back({expert_.bytes, rows, std::max(there - costs.launch - crossing, each)});
  }
  model.host = FitCost(host);
  costs.compute = FitCost(device);
  TRY(const double copy, CopySeconds());
  const Pair alone{.host = host.front().seconds, .copy = copy};
  const CostSample copies[] = {{expert_.bytes, 1, alone.copy}};
  costs.copy = FitCost(copies);
  TRY(const Pair together, Together(alone));
  const uint32_t together_there = many * each < kLongRun ? many : 1;
  const LayerPlan launched = PlanOf(expert_.key, together_there, 1, expert_.slots);
  TRY(const double beside_launch, HostSeconds(1, &launched));
  // Beside a launch that takes longer, its calls are nothing.
  const double longest = 2.0 * (one + together_there * each);
  if (longest < kLongRun) {
    TRY_STATUS(MeasureCalls(launched, longest, costs));
  }
  const double host_beside = std::max(together.host, beside_launch) / alone.host;
  model.host_beside = std::clamp(host_beside, 1.0, kMostBeside);
  costs.copy_beside = std::clamp(together.copy / alone.copy, 1.0, kMostBeside);
  TRY_STATUS(CheckLatency(model));
  return model;
}

}  // namespace moestro
