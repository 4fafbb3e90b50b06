// SPDX-License-Identifier: MIT
#include "compute/cpu_traits.h"

#include <dlfcn.h>
#include <ggml-backend.h>
#include <ggml-cpp.h>

namespace moestro {
namespace {

// A symbol of the shared object that holds `address`, without taking a reference on it: ggml never
// unloads a registered backend.
void* SymbolBeside(const void* address, const char* symbol) {
  Dl_info info{};
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) return nullptr;
  void* object = dlopen(info.dli_fname, RTLD_NOLOAD | RTLD_LAZY);
  if (object == nullptr) return nullptr;
  void* found = dlsym(object, symbol);
  dlclose(object);
  return found;
}

}  // namespace

Result<CpuTraits> CpuTraits::Load() {
  if (ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU) == nullptr) ggml_backend_load_all();
  ggml_backend_dev_t device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
  if (device == nullptr) {
    return Fail(
        Errc::kUnsupported,
        "ggml found no CPU backend; install ggml's backend package or set GGML_BACKEND_PATH");
  }
  // Starting a backend fills the lookup tables that the per-type functions read.
  const ggml_backend_ptr backend(ggml_backend_dev_init(device, nullptr));
  if (!backend) return Fail(Errc::kUnsupported, "ggml cannot start its CPU backend");
  // Any function of the plug-in tells which file it came from.
  const void* inside = ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(device),
                                                         "ggml_backend_set_n_threads");
  if (inside == nullptr) return Missing();
  return CpuTraits(reinterpret_cast<Get>(SymbolBeside(inside, "ggml_get_type_traits_cpu")));
}

}  // namespace moestro
