// SPDX-License-Identifier: MIT
#include "device/cpu_device.h"

#include <dlfcn.h>
#include <ggml-cpp.h>

#include <filesystem>
#include <string>
#include <utility>

#include "base/format.h"
#include "base/system_limits.h"
#include "device/backends.h"

namespace moestro {
namespace {

// The file of the shared object that holds `address`; empty: not known.
std::string ObjectOf(const void* address) {
  Dl_info info{};
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) return "";
  return info.dli_fname;
}

// A symbol of the shared object that holds `address`, without taking a reference on the object:
// ggml never unloads a registered backend.
void* SymbolBeside(const void* address, const char* symbol) {
  const std::string file = ObjectOf(address);
  if (file.empty()) return nullptr;
  void* object = dlopen(file.c_str(), RTLD_NOLOAD | RTLD_LAZY);
  if (object == nullptr) return nullptr;
  void* found = dlsym(object, symbol);
  dlclose(object);
  return found;
}

}  // namespace

Result<CpuTraits> CpuTraits::Load() {
  LoadCpuBackend();
  ggml_backend_dev_t device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
  if (device == nullptr) {
    return Fail(
        Errc::kUnsupported,
        "ggml found no CPU backend; install ggml's backend package or set GGML_BACKEND_PATH");
  }
  // Starting a backend fills the lookup tables that the per-type functions read.
  const Result<BackendPtr> backend = StartBackend(ggml_backend_dev_name(device));
  if (!backend) return Fail(Errc::kUnsupported, "ggml cannot start its CPU backend");
  // The address of any function of the plug-in identifies the plug-in's file.
  const void* inside = ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(device),
                                                         "ggml_backend_set_n_threads");
  if (inside == nullptr) return Missing();
  return CpuTraits(reinterpret_cast<Get>(SymbolBeside(inside, "ggml_get_type_traits_cpu")));
}

Result<CpuDevice> CpuDevice::Open(uint32_t threads) {
  if (threads > GGML_MAX_N_THREADS) {
    return Fail(Errc::kUsage,
                "{} threads are too many: ggml takes at most {}, and more than the {} cores that "
                "this process may use make it slower; set --threads",
                threads, GGML_MAX_N_THREADS, PhysicalCores());
  }
  TRY(const CpuTraits traits, CpuTraits::Load());
  ggml_backend_dev_t device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
  Result<BackendPtr> backend = StartBackend(ggml_backend_dev_name(device));
  if (!backend) return Fail(Errc::kUnsupported, "ggml cannot start its CPU backend");
  const uint32_t team = threads > 0 ? threads : PhysicalCores();
  auto* set_threads =
      reinterpret_cast<ggml_backend_set_n_threads_t>(ggml_backend_reg_get_proc_address(
          ggml_backend_dev_backend_reg(device), "ggml_backend_set_n_threads"));
  if (set_threads == nullptr) {
    return Fail(Errc::kUnsupported, "ggml's CPU backend does not let its threads be set");
  }
  set_threads(backend->get(), static_cast<int>(team));
  return CpuDevice(*std::move(backend), traits, team);
}

std::string CpuDevice::plug_in() const {
  const void* inside = ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(handle()),
                                                         "ggml_backend_set_n_threads");
  std::string name = std::filesystem::path(ObjectOf(inside)).stem().string();
  return name.starts_with("lib") ? name.substr(3) : name;
}

CpuDevice::CpuDevice(BackendPtr backend, CpuTraits traits, uint32_t threads)
    : backend_(std::move(backend)),
      traits_(traits),
      threads_(threads),
      set_abort_callback_(
          reinterpret_cast<ggml_backend_set_abort_callback_t>(ggml_backend_reg_get_proc_address(
              ggml_backend_dev_backend_reg(handle()), "ggml_backend_set_abort_callback"))) {}

Status CpuDevice::Compute(ggml_cgraph* graph, StopSignal& stop) {
  if (set_abort_callback_ == nullptr) return Compute(graph);
  const auto look = [](void* signal) { return static_cast<StopSignal*>(signal)->is_requested(); };
  set_abort_callback_(backend(), look, &stop);
  Status done = Compute(graph);
  set_abort_callback_(backend(), nullptr, nullptr);
  return done;
}

std::string CpuDevice::description() const {
  return Format("{}, {} threads", ggml_backend_dev_description(handle()), threads_);
}

std::vector<ggml_backend_buffer_type_t> CpuDevice::repacking_buffer_types() const {
  auto* get =
      reinterpret_cast<ggml_backend_dev_get_extra_bufts_t>(ggml_backend_reg_get_proc_address(
          ggml_backend_dev_backend_reg(handle()), "ggml_backend_dev_get_extra_bufts"));
  std::vector<ggml_backend_buffer_type_t> types;
  if (get == nullptr) return types;
  for (ggml_backend_buffer_type_t* type = get(handle()); type != nullptr && *type != nullptr;
       ++type) {
    types.push_back(*type);
  }
  return types;
}

bool CpuDevice::CanMultiply(ggml_type type, int64_t n_in, int64_t n_out,
                            ggml_backend_buffer_type_t buffer_type) const {
  const ggml_init_params params{
      .mem_size = 8 * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true};
  const ggml_context_ptr context(ggml_init(params));
  ggml_tensor* weight = ggml_new_tensor_2d(context.get(), type, n_in, n_out);
  ggml_tensor* product = ggml_mul_mat(context.get(), weight,
                                      ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, n_in, 1));
  // The backend judges by the type of the weight's buffer; an empty buffer is enough.
  const Result<BufferPtr> buffer = AllocateBuffer(buffer_type, 0);
  if (!buffer) return false;
  weight->buffer = buffer->get();
  return Computes(handle(), product);
}

}  // namespace moestro
