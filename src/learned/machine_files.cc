// SPDX-License-Identifier: MIT
#include "learned/machine_files.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/cache_files.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/result.h"
#include "base/terminal.h"
#include "base/text.h"
#include "learned/beside_model.h"

namespace moestro {
namespace {

constexpr JsonFileKind kLatencyKind{
    .format = "moestro latency", .version = 1, .what = "a machine's latency model"};
constexpr double kMicro = 1e-6;
constexpr double kPerGiga = 1e-9;
// Far beyond any machine; beyond these a value has the wrong unit.
constexpr double kMostMicros = 1e9;
constexpr double kLeastRate = 1e-6;
constexpr double kMostRate = 1e9;
constexpr double kMostShare = 1e6;
constexpr double kMostMemory = 1e15;

double Rounded(double value) {
  const std::string text = Format("{:.6g}", value);
  double rounded = value;
  std::from_chars(text.data(), text.data() + text.size(), rounded);
  return rounded;
}

// "gb_per_s" of null: bytes cost nothing.
Json ToJson(const Cost& cost) {
  Json json = Json::Object();
  json.Set("base_us", Rounded(cost.base / kMicro))
      .Set("gb_per_s", cost.per_byte > 0.0 ? Json(Rounded(kPerGiga / cost.per_byte)) : Json());
  if (cost.per_row > 0.0 && cost.per_byte > 0.0) {
    json.Set("row_share", Rounded(cost.per_row / cost.per_byte));
  } else if (cost.per_row > 0.0) {
    json.Set("row_gb_per_s", Rounded(kPerGiga / cost.per_row));
  }
  if (cost.error > 0.0) json.Set("error", Rounded(cost.error));
  return json;
}

Status CheckKeys(JsonView json, const std::string& where, std::span<const std::string_view> known) {
  for (const std::string& key : json.keys()) {
    if (!std::ranges::contains(known, key)) {
      return Fail(Errc::kInvalidFile, "{} has '{}', which nobody knows", where, key);
    }
  }
  return {};
}

// One object of the file; keys in `more` are allowed beside its costs.
class CostFields {
 public:
  CostFields(JsonView json, std::string name)
      : json_(json), name_(std::move(name)), fields_(json, "'" + name_ + "'") {}

  Status Check(std::initializer_list<std::string_view> more) const {
    std::vector<std::string_view> known = {"base_us", "gb_per_s", "row_share", "row_gb_per_s",
                                           "error"};
    known.insert(known.end(), more.begin(), more.end());
    return CheckKeys(json_, "'" + name_ + "'", known);
  }
  Result<Cost> Parse() const {
    Cost cost;
    TRY(const double micros, fields_.Number("base_us", 0.0, kMostMicros));
    cost.base = micros * kMicro;
    if (!json_.Find("gb_per_s")) {
      return Fail(Errc::kInvalidFile, "'{}' has no 'gb_per_s'; null if bytes cost nothing", name_);
    }
    TRY(const auto rate, fields_.NumberIfAny("gb_per_s", kLeastRate, kMostRate));
    if (rate) cost.per_byte = kPerGiga / *rate;
    TRY(const auto share, fields_.NumberIfAny("row_share", 0.0, kMostShare));
    TRY(const auto row_rate, fields_.NumberIfAny("row_gb_per_s", kLeastRate, kMostRate));
    if (share && (row_rate || !rate)) {
      return Fail(Errc::kInvalidFile, "'{}' has a 'row_share' {}", name_,
                  rate ? "and a 'row_gb_per_s'; one is enough" : "of no 'gb_per_s'");
    }
    if (share) cost.per_row = *share * cost.per_byte;
    if (row_rate) cost.per_row = kPerGiga / *row_rate;
    TRY(const auto error, fields_.NumberIfAny("error", 0.0, kMostShare));
    cost.error = error.value_or(0.0);
    return cost;
  }
  Result<double> Beside() const {
    TRY(const auto factor, fields_.NumberIfAny("beside", 1.0, kMostBeside));
    return factor.value_or(1.0);
  }
  const Fields& fields() const { return fields_; }
  std::optional<JsonView> Find(std::string_view key) const { return json_.Find(key); }

 private:
  JsonView json_;
  std::string name_;
  Fields fields_;
};

Result<CostFields> FindCost(JsonView json, const std::string& name) {
  if (const auto found = json.Find(name)) return CostFields(*found, name);
  return Fail(Errc::kInvalidFile, "it has no '{}'", name);
}

Status ParseHost(JsonView json, LatencyModel& model) {
  TRY(const CostFields host, FindCost(json, "host"));
  TRY_STATUS(host.Check({"beside"}));
  TRY(model.host_beside, host.Beside());
  TRY(model.host, host.Parse());
  return {};
}

Status ParseDevice(const CostFields& device, const CostFields& copy, LatencyFile& file) {
  DeviceCosts costs;
  TRY_STATUS(device.Check(
      {"name", "launch_us", "calls_us", "begin_us", "pair_us", "remote", "memory_bytes"}));
  TRY(std::string name, device.fields().Text("name"));
  if (name.empty()) return Fail(Errc::kInvalidFile, "the 'name' of 'device' is empty");
  if (std::ranges::contains(file.devices, name)) {
    return Fail(Errc::kInvalidFile, "two devices have the name '{}'", name);
  }
  TRY(const double launch, device.fields().Number("launch_us", 0.0, kMostMicros));
  costs.launch = launch * kMicro;
  const auto optional = [&](const char* key, double& seconds) -> Status {
    if (!device.Find(key)) return {};
    TRY(const double micros, device.fields().Number(key, 0.0, kMostMicros));
    seconds = micros * kMicro;
    return {};
  };
  TRY_STATUS(optional("calls_us", costs.calls));
  TRY_STATUS(optional("begin_us", costs.begin));
  TRY_STATUS(optional("pair_us", costs.pair));
  TRY(costs.compute, device.Parse());
  TRY_STATUS(copy.Check({"beside", "queued"}));
  TRY(costs.copy_beside, copy.Beside());
  TRY(costs.copy, copy.Parse());
  const auto flag = [&](const CostFields& of, const char* key) -> Result<bool> {
    const auto value = of.Find(key);
    if (!value) return false;
    if (const auto truth = value->boolean()) return *truth;
    return Fail(Errc::kInvalidFile, "'{}' of '{}' is neither true nor false", key, name);
  };
  TRY(costs.is_queued, flag(copy, "queued"));
  TRY(const bool is_remote, flag(device, "remote"));
  uint64_t memory = 0;
  if (device.Find("memory_bytes")) {
    TRY(memory, device.fields().Count("memory_bytes", 1, kMostMemory));
  }
  file.memory.push_back(memory);
  file.is_remote.push_back(is_remote);
  file.devices.push_back(std::move(name));
  file.model.devices.push_back(costs);
  return {};
}

// One device and the copies to it, or a list of devices and one of copies in the same order.
Status ParseDevices(JsonView json, LatencyFile& file) {
  TRY(const CostFields device, FindCost(json, "device"));
  TRY(const CostFields copy, FindCost(json, "copy"));
  const JsonView devices = *json.Find("device");
  const JsonView copies = *json.Find("copy");
  const bool is_list = devices.At(0).has_value();
  if (is_list != copies.At(0).has_value() || (is_list && devices.size() != copies.size())) {
    return Fail(Errc::kInvalidFile, "'device' and 'copy' have not as many entries");
  }
  if (!is_list) return ParseDevice(device, copy, file);
  for (size_t i = 0; i < devices.size(); ++i) {
    TRY_STATUS(ParseDevice(CostFields(*devices.At(i), Format("device {}", i + 1)),
                           CostFields(*copies.At(i), Format("copy {}", i + 1)), file));
  }
  return {};
}

Result<Cost> ParsePlain(JsonView json, const std::string& name) {
  TRY(const CostFields cost, FindCost(json, name));
  TRY_STATUS(cost.Check({}));
  return cost.Parse();
}

Status ParseSources(JsonView json, LatencyFile& file) {
  for (const std::string& key : json.keys()) {
    const auto text = json.Find(key)->text();
    if (!text) return Fail(Errc::kInvalidFile, "the source of '{}' is no text", key);
    file.sources.emplace_back(key, *text);
  }
  return {};
}

Status ParseBorder(JsonView json, LatencyModel& model) {
  for (const auto& [key, seconds] :
       {std::pair("border_us", &model.border), std::pair("border_pair_us", &model.border_pair)}) {
    if (!json.Find(key)) continue;
    TRY(const double micros, Fields(json, "the file").Number(key, 0.0, kMostMicros));
    *seconds = micros * kMicro;
  }
  return {};
}

Status Parse(JsonView json, LatencyFile& file) {
  static constexpr std::string_view kKeys[] = {"format",    "version",        "machine", "host",
                                               "disk",      "device",         "copy",    "dense",
                                               "border_us", "border_pair_us", "sources"};
  TRY_STATUS(CheckKeys(json, "the file", kKeys));
  TRY(file.machine, Fields(json, "the file").Text("machine"));
  TRY_STATUS(ParseHost(json, file.model));
  TRY(file.model.disk, ParsePlain(json, "disk"));
  if (json.Find("device") || json.Find("copy")) TRY_STATUS(ParseDevices(json, file));
  if (json.Find("dense")) {
    TRY(file.dense, ParsePlain(json, "dense"));
  }
  TRY_STATUS(ParseBorder(json, file.model));
  if (const auto sources = json.Find("sources")) TRY_STATUS(ParseSources(*sources, file));
  return CheckLatency(file.model);
}

void SetDevices(Json& json, const LatencyFile& file) {
  Json devices = Json::Array();
  Json copies = Json::Array();
  const size_t n = file.model.devices.size();
  for (size_t d = 0; d < n; ++d) {
    const DeviceCosts& costs = file.model.devices[d];
    Json device = ToJson(costs.compute);
    device.Set("name", file.devices[d]).Set("launch_us", Rounded(costs.launch / kMicro));
    if (costs.calls > 0.0) device.Set("calls_us", Rounded(costs.calls / kMicro));
    if (costs.begin > 0.0) device.Set("begin_us", Rounded(costs.begin / kMicro));
    if (costs.pair > 0.0) device.Set("pair_us", Rounded(costs.pair / kMicro));
    if (d < file.is_remote.size() && file.is_remote[d]) device.Set("remote", true);
    if (d < file.memory.size() && file.memory[d] > 0) device.Set("memory_bytes", file.memory[d]);
    Json copy = ToJson(costs.copy);
    copy.Set("beside", Rounded(costs.copy_beside));
    if (costs.is_queued) copy.Set("queued", true);
    if (n == 1) {
      json.Set("device", std::move(device)).Set("copy", std::move(copy));
      return;
    }
    devices.Push(std::move(device));
    copies.Push(std::move(copy));
  }
  if (n > 1) json.Set("device", std::move(devices)).Set("copy", std::move(copies));
}

void SetBorder(Json& json, const LatencyModel& model) {
  if (model.border > 0.0) json.Set("border_us", Rounded(model.border / kMicro));
  if (model.border_pair > 0.0) json.Set("border_pair_us", Rounded(model.border_pair / kMicro));
}

}  // namespace

Status WriteLatency(const OutputPath& path, const LatencyFile& file) {
  CHECK(file.devices.size() == file.model.devices.size());
  TRY_STATUS(CheckLatency(file.model));
  Json json = BeginJsonFile(kLatencyKind);
  Json host = ToJson(file.model.host);
  host.Set("beside", Rounded(file.model.host_beside));
  json.Set("machine", file.machine)
      .Set("host", std::move(host))
      .Set("disk", ToJson(file.model.disk));
  SetDevices(json, file);
  json.Set("dense", ToJson(file.dense));
  SetBorder(json, file.model);
  Json sources = Json::Object();
  for (const auto& [value, source] : file.sources) sources.Set(value, source);
  json.Set("sources", std::move(sources));
  return WriteJsonFile(path, json);
}

Result<LatencyModel> CostsOf(const LatencyFile& file, const std::string& device, bool is_only) {
  const auto found = std::ranges::find(file.devices, device);
  auto index = static_cast<size_t>(found - file.devices.begin());
  if (found == file.devices.end() && is_only && file.devices.size() == 1) index = 0;
  if (index == file.devices.size()) {
    return Fail(Errc::kInvalidRequest, "the latency model has no costs of the device {}", device);
  }
  LatencyModel model = file.model;
  model.devices = {file.model.devices[index]};
  return model;
}

Result<LatencyFile> ReadLatency(const std::string& path) {
  LatencyFile file;
  TRY_STATUS(
      ReadJsonFile(path, kLatencyKind, [&file](JsonView json) { return Parse(json, file); }));
  return file;
}

namespace {

constexpr JsonFileKind kRatesKind{
    .format = "moestro machine", .version = 1, .what = "the speeds of a machine"};
constexpr double kGiga = 1e9;
constexpr double kMostBarrierMicros = 1e6;
// Beyond these a value has the wrong unit.
constexpr double kMostMachineRate = 1e7;
constexpr double kMostThreads = 65536;
constexpr double kMostReads = 4096;
constexpr size_t kMostKernels = 256;
constexpr size_t kLongestName = 64;

std::string RatesPath(const std::string& folder, const RatesKey& key) {
  Fnv1a hash;
  hash.Add(Format("{}, disk {:x}", key.cpu, key.disk));
  return Format("{}/machine-{:016x}.json", folder, hash.value());
}

Result<KernelRate> ReadKernel(JsonView view, size_t at) {
  const Fields fields(view, Format("kernel {}", at + 1));
  KernelRate rate;
  TRY(rate.type, fields.Text("type"));
  if (rate.type.empty() || rate.type.size() > kLongestName) {
    return Fail(Errc::kInvalidFile, "kernel {}: its type is no name", at + 1);
  }
  TRY(const double decode, fields.Number("decode_gb_per_s", kLeastRate, kMostMachineRate));
  TRY(const double prompt, fields.Number("prompt_gweights_per_s", kLeastRate, kMostMachineRate));
  rate.decode = decode * kGiga;
  rate.prompt = prompt * kGiga;
  return rate;
}

// 0: the file does not say.
Result<uint64_t> ParsePage(const Fields& fields) {
  constexpr double kLeastPage = 4096;
  constexpr double kMostPage = 65536;
  TRY(const std::optional<double> given, fields.NumberIfAny("page_bytes", kLeastPage, kMostPage));
  const auto page = static_cast<uint64_t>(given.value_or(0.0));
  if (given && (static_cast<double>(page) != *given || !std::has_single_bit(page))) {
    return Fail(Errc::kInvalidFile, "'page_bytes' is {}, and pages have 4096, 16384 or 65536",
                *given);
  }
  return page;
}

Result<MachineRates> Parse(JsonView file) {
  const Fields fields(file, "the file");
  MachineRates rates;
  TRY(rates.cpu, fields.Text("cpu"));
  TRY(const uint64_t threads, fields.Count("threads", 1, kMostThreads));
  rates.threads = static_cast<uint32_t>(threads);
  TRY(rates.memory, fields.Count("memory_bytes", 1, kMostMemory));
  TRY(rates.page, ParsePage(fields));
  TRY(const double disk, fields.Number("disk_gb_per_s", kLeastRate, kMostMachineRate));
  rates.disk = disk * kGiga;
  TRY(const uint64_t depth, fields.Count("io_depth", 1, kMostReads));
  rates.io_depth = static_cast<uint32_t>(depth);
  TRY(const double barrier, fields.Number("barrier_us", 0.0, kMostBarrierMicros));
  rates.barrier = barrier * kMicro;
  const std::optional<JsonView> kernels = file.Find("kernels");
  if (!kernels || kernels->kind() != JsonKind::kArray || kernels->size() > kMostKernels) {
    return Fail(Errc::kInvalidFile, "'kernels' is not a list of at most {}", kMostKernels);
  }
  for (size_t i = 0; i < kernels->size(); ++i) {
    TRY(KernelRate rate, ReadKernel(*kernels->At(i), i));
    if (rates.Find(rate.type) != nullptr) {
      return Fail(Errc::kInvalidFile, "kernel {}: type {} comes twice", i + 1, rate.type);
    }
    rates.kernels.push_back(std::move(rate));
  }
  return rates;
}

Status ParseDevicesAlone(JsonView json, LatencyFile& file) {
  if (!json.Find("device") && !json.Find("copy")) return {};
  TRY_STATUS(ParseDevices(json, file));
  TRY_STATUS(ParseBorder(json, file.model));
  return CheckLatency(file.model);
}

Json ToJson(const MachineRates& rates) {
  Json kernels = Json::Array();
  for (const KernelRate& rate : rates.kernels) {
    Json kernel = Json::Object();
    kernel.Set("type", rate.type)
        .Set("decode_gb_per_s", rate.decode / kGiga)
        .Set("prompt_gweights_per_s", rate.prompt / kGiga);
    kernels.Push(std::move(kernel));
  }
  Json json = BeginJsonFile(kRatesKind);
  json.Set("cpu", rates.cpu)
      .Set("threads", rates.threads)
      .Set("memory_bytes", rates.memory)
      .Set("page_bytes", rates.page > 0 ? Json(rates.page) : Json())
      .Set("disk_gb_per_s", rates.disk / kGiga)
      .Set("io_depth", rates.io_depth)
      .Set("barrier_us", rates.barrier / kMicro)
      .Set("kernels", std::move(kernels));
  return json;
}

}  // namespace

Status WriteRates(const OutputPath& path, const MachineRates& rates) {
  return WriteJsonFile(path, ToJson(rates));
}

Status WriteMachine(const OutputPath& path, const MachineRates& rates, const LatencyFile& devices) {
  CHECK(devices.devices.size() == devices.model.devices.size());
  Json json = ToJson(rates);
  SetDevices(json, devices);
  SetBorder(json, devices.model);
  return WriteJsonFile(path, json);
}

Result<LatencyFile> ReadDevices(const std::string& path) {
  LatencyFile file;
  TRY_STATUS(ReadJsonFile(path, kRatesKind,
                          [&file](JsonView json) { return ParseDevicesAlone(json, file); }));
  return file;
}

Result<MachineRates> ReadRates(const std::string& path) {
  MachineRates rates;
  TRY_STATUS(ReadJsonFile(path, kRatesKind, [&rates](JsonView file) -> Status {
    TRY(rates, Parse(file));
    return {};
  }));
  return rates;
}

std::optional<MachineRates> KeptRates(const std::string& folder, const RatesKey& key) {
  if (folder.empty()) return std::nullopt;
  const std::string path = RatesPath(folder, key);
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::nullopt;
  Result<MachineRates> rates = ReadRates(path);
  if (rates && rates->cpu == key.cpu) return *std::move(rates);
  LogInfo("the machine is measured again: {}",
          rates ? path + " is of another machine" : rates.error().message);
  return std::nullopt;
}

MachineRates KeepRates(const std::string& folder, const RatesKey& key, const MachineRates& rates) {
  const Json file = ToJson(rates);
  Result<MachineRates> kept = Parse(file.view());
  if (!folder.empty()) {
    [[maybe_unused]] const std::error_code made = MakePrivateFolder(folder);  // writing will say so
    const Status written = WriteJsonFile(RatesPath(folder, key), file);
    if (!written) LogInfo("the machine's speeds are not kept: {}", written.error().message);
  }
  return kept ? *std::move(kept) : rates;  // rates out of range are no file's
}

}  // namespace moestro
