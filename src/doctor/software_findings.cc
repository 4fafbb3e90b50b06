// SPDX-License-Identifier: MIT
#include "doctor/software_findings.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/format.h"
#include "base/printable.h"
#include "base/text.h"
#include "doctor/access.h"

namespace moestro {
namespace {

void AddSandbox(const SandboxFacts& sandbox, Findings& findings) {
  const std::string where =
      sandbox.container.empty() ? "no container" : Printable(sandbox.container);
  findings.push_back(Fine(
      "sandbox", where + (sandbox.has_filter ? ", with a filter of system calls (seccomp)" : "")));
}

void AddLibraries(const GgmlFacts& ggml, Findings& findings) {
  for (const LibraryFacts& library : ggml.libraries) {
    if (library.running.empty()) continue;
    if (library.running == library.built) {
      findings.push_back(Fine("libraries", Format("{} {}, as it was built with", library.name,
                                                  Printable(library.running))));
      continue;
    }
    findings.push_back(Warning(
        "libraries",
        Format("{} {}, but this program was built with {}: only equal versions are tested together",
               library.name, Printable(library.running), Printable(library.built)),
        Format("install {} {}, or build Moestro again (make build)", library.name,
               Printable(library.built))));
  }
}

// Whether a plug-in is for processors without AVX2, with which a token takes several times as long.
bool IsForOldProcessors(std::string_view variant) {
  constexpr std::array<std::string_view, 5> kOld = {"x64", "sse42", "sandybridge", "ivybridge",
                                                    "piledriver"};
  return std::ranges::contains(kOld, variant);
}

void AddVariant(const SystemFacts& facts, Findings& findings) {
  const GgmlFacts& ggml = facts.ggml;
  const std::string folder = Printable(ggml.plug_in_folder, 4096);
  if (!ggml.has_cpu) {
    findings.push_back(Fault("CPU variant", Format("no CPU plug-in of ggml's in {} works", folder),
                             "sudo apt install --reinstall libggml0"));
    return;
  }
  const auto best = std::ranges::max_element(ggml.variants, {}, &CpuVariantFacts::score);
  if (best == ggml.variants.end() || best->score == 0) {
    findings.push_back(Warning("CPU variant",
                               Format("no variants in {}: ggml's plain code computes", folder),
                               "sudo apt install --reinstall libggml0"));
    return;
  }
  const auto usable = std::ranges::count_if(
      ggml.variants, [](const CpuVariantFacts& variant) { return variant.score > 0; });
  const std::string text = Format("{}, the best of {} that this CPU runs ({} installed)",
                                  Printable(best->name), usable, ggml.variants.size());
  if (facts.processor.has_avx2 && IsForOldProcessors(best->name)) {
    findings.push_back(Warning("CPU variant", text + ", though it has AVX2",
                               "sudo apt install --reinstall libggml0"));
  } else {
    findings.push_back(Fine("CPU variant", text));
  }
}

void AddNodesWithoutDevice(const SystemFacts& facts, Findings& findings) {
  const GraphicsFacts& graphics = facts.graphics;
  if (!graphics.has_vulkan_plug_in) {
    findings.push_back(Warning("devices", "there is a GPU, and no plug-in of ggml's that uses it",
                               "sudo apt install libggml0-backend-vulkan"));
  } else if (graphics.vulkan_drivers == 0) {
    findings.push_back(
        Warning("devices", "there is a GPU, and no Vulkan driver for it",
                "sudo apt install mesa-vulkan-drivers, or the GPU maker's own driver"));
  } else {
    findings.push_back(Warning("devices", "there is a GPU, but no Vulkan driver takes it",
                               "vulkaninfo --summary (vulkan-tools) says why"));
  }
}

}  // namespace

void AddSoftwareFindings(const SystemFacts& facts, Findings& findings) {
  AddSandbox(facts.sandbox, findings);
  AddLibraries(facts.ggml, findings);
  AddVariant(facts, findings);
}

void AddGraphicsFindings(const SystemFacts& facts, Findings& findings) {
  const GraphicsFacts& graphics = facts.graphics;
  const size_t before = findings.size();
  for (const std::string& address : graphics.driverless) {
    findings.push_back(
        Warning("devices", Format("the GPU at {} has no kernel driver", Printable(address)),
                "install its driver and firmware (firmware-amd-graphics, nvidia-driver)"));
  }
  bool has_usable_node = false;
  for (const DeviceNodeFacts& node : graphics.nodes) {
    has_usable_node |= node.is_usable;
    if (node.is_usable) continue;
    const std::string group = node.group.empty() ? "render" : node.group;
    findings.push_back(
        Warning("devices", Format("this user may not use {}", Printable(node.path)),
                Format("sudo usermod -aG {} $USER, then log in again", ShellWord(group))));
  }
  std::vector<std::string> found;
  bool has_hardware = false;
  for (const DeviceInfo& device : graphics.devices) {
    if (device.kind == DeviceKind::kCpu) continue;
    has_hardware |= device.kind != DeviceKind::kSoftware;
    found.push_back(Format("{} ({}, {} free{})", device.name, Printable(device.description),
                           FormatBytes(device.memory_free),
                           device.kind == DeviceKind::kSoftware ? ", in software" : ""));
  }
  if (has_usable_node && !has_hardware) AddNodesWithoutDevice(facts, findings);
  if (!found.empty()) {
    findings.push_back(Fine("devices", Joined(found)));
  } else if (findings.size() == before) {
    findings.push_back(Fine("devices", "no GPU: the CPU computes"));
  }
}

}  // namespace moestro
