// SPDX-License-Identifier: MIT
#include "learned/rates_file.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "base/cache_folder.h"
#include "base/format.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "learned/json_fields.h"

namespace moestro {
namespace {

constexpr JsonFileKind kRatesKind{
    .format = "moestro machine", .version = 1, .what = "the speeds of a machine"};
constexpr double kGiga = 1e9;
constexpr double kMicro = 1e-6;
constexpr double kMostMicros = 1e6;
// Beyond these a value has the wrong unit.
constexpr double kLeastRate = 1e-6;
constexpr double kMostRate = 1e7;
constexpr double kMostMemory = 1e15;
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
  TRY(const double decode, fields.Number("decode_gb_per_s", kLeastRate, kMostRate));
  TRY(const double prompt, fields.Number("prompt_gweights_per_s", kLeastRate, kMostRate));
  rate.decode = decode * kGiga;
  rate.prompt = prompt * kGiga;
  return rate;
}

Result<MachineRates> Parse(JsonView file) {
  const Fields fields(file, "the file");
  MachineRates rates;
  TRY(rates.cpu, fields.Text("cpu"));
  TRY(const uint64_t threads, fields.Count("threads", 1, kMostThreads));
  rates.threads = static_cast<uint32_t>(threads);
  TRY(rates.memory, fields.Count("memory_bytes", 1, kMostMemory));
  TRY(const double disk, fields.Number("disk_gb_per_s", kLeastRate, kMostRate));
  rates.disk = disk * kGiga;
  TRY(const uint64_t depth, fields.Count("io_depth", 1, kMostReads));
  rates.io_depth = static_cast<uint32_t>(depth);
  TRY(const double barrier, fields.Number("barrier_us", 0.0, kMostMicros));
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

void KeepRates(const std::string& folder, const RatesKey& key, const MachineRates& rates) {
  if (folder.empty()) return;
  [[maybe_unused]] const std::error_code made = MakePrivateFolder(folder);  // writing will say so
  const Status written = WriteRates(RatesPath(folder, key), rates);
  if (!written) LogInfo("the machine's speeds are not kept: {}", written.error().message);
}

}  // namespace moestro
