// SPDX-License-Identifier: MIT
// Findings about GPUs: drivers, memory that the CPU reaches, and clocks. Pure.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/number.h"
#include "base/terminal.h"
#include "base/text.h"
#include "doctor/access.h"
#include "doctor/machine_findings.h"

namespace moestro {
namespace {

void AddNodesWithoutDevice(const GraphicsFacts& graphics, Findings& findings) {
  if (graphics.vulkan_drivers == 0) {
    findings.push_back(
        Warning("devices", "there is a GPU, and no Vulkan driver for it",
                "sudo apt install mesa-vulkan-drivers, or the GPU maker's own driver"));
  } else {
    findings.push_back(Warning("devices", "there is a GPU, but no Vulkan driver takes it",
                               "vulkaninfo --summary (vulkan-tools) says why"));
  }
}

bool IsHardware(const DeviceInfo& device) {
  return device.kind != DeviceKind::kCpu && device.kind != DeviceKind::kSoftware;
}

// Drivers and plug-ins that are not installed, for GPUs that this user may use.
void AddDrivers(const GraphicsFacts& graphics, Findings& findings) {
  const bool has_hardware = std::ranges::any_of(graphics.devices, IsHardware);
  const bool has_node = std::ranges::any_of(graphics.nodes, &DeviceNodeFacts::is_usable);
  const bool has_nvidia = std::ranges::any_of(graphics.devices, [](const DeviceInfo& device) {
    return device.description.contains("NVIDIA") && IsHardware(device);
  });
  if (!has_node) return;
  if (!graphics.has_vulkan_plug_in && !has_hardware) {
    findings.push_back(Warning("devices", "there is a GPU, and no plug-in of ggml's that uses it",
                               "sudo apt install libggml0-backend-vulkan"));
  } else if (graphics.has_nvidia_driver && !graphics.has_nvidia_vulkan && !has_nvidia) {
    findings.push_back(
        Warning("devices", "there is an NVIDIA GPU with its driver, and no Vulkan part of it",
                "sudo apt install nvidia-vulkan-icd (contrib, non-free), or all of NVIDIA's own "
                "driver; in a container graphics among NVIDIA_DRIVER_CAPABILITIES"));
  } else if (!has_hardware) {
    AddNodesWithoutDevice(graphics, findings);
  }
}

// Whether the CPU reaches less than the card's memory. That of NVIDIA's cards is not known: a
// window of 256 MiB, as firmware gives without a setting, is taken for less.
bool HidesMemory(const CardFacts& card) {
  constexpr uint64_t kUsualWindow = 256 * kMiB;
  if (card.visible == 0) return false;
  if (card.memory > 0) return card.visible < card.memory - card.memory / 10;
  return card.is_nvidia && card.visible <= kUsualWindow;
}

void AddMemory(const CardFacts& card, Findings& findings) {
  if (!HidesMemory(card)) return;
  const std::string whole =
      card.memory > 0 ? "its " + FormatBytes(card.memory) : std::string("its memory");
  findings.push_back(
      Warning("devices",
              Format("the GPU at {} shows {} of {} to the CPU: what goes there takes a detour",
                     Printable(card.address), FormatBytes(card.visible), whole),
              "turn on 'Above 4G decoding' and 'Resizable BAR' (Smart Access Memory) in the "
              "firmware's setup, and update the firmware if it has neither"));
}

// A clock that a limit, heat or a setting keeps down.
void AddClock(const CardFacts& card, Findings& findings) {
  constexpr double kNearLimit = 5.0;  // degrees
  const std::string name = "the GPU at " + Printable(card.address);
  if (!card.slowed_by.empty()) {
    findings.push_back(
        Warning("devices", Format("{} throttles now: {}", name, Printable(Joined(card.slowed_by))),
                "more cooling, a stronger power supply, or a higher power limit"));
  } else if (card.hottest && *card.hottest < kNearLimit) {
    findings.push_back(Warning("devices",
                               Format("{} is at the temperature at which its clock falls", name),
                               "free its fans and air ways, or lower its power limit"));
  }
  if (card.power_limit > 0 && card.power_limit < card.usual_power - card.usual_power / 10) {
    constexpr uint64_t kWatt = 1'000'000;
    findings.push_back(
        Warning("devices",
                Format("{} may take {} W of its usual {}", name, card.power_limit / kWatt,
                       card.usual_power / kWatt),
                "raise hwmon's power1_cap below /sys/class/drm, unless the limit is wanted"));
  }
  if (card.level == "low" || card.level == "profile_min_sclk" || card.level == "profile_min_mclk") {
    findings.push_back(Warning("devices",
                               Format("{} is held at its lowest clock ({})", name, card.level),
                               "echo auto | sudo tee "
                               "/sys/class/drm/card*/device/power_dpm_force_performance_level"));
  }
}

}  // namespace

void AddGraphicsFindings(const SystemFacts& facts, Findings& findings) {
  const GraphicsFacts& graphics = facts.graphics;
  const size_t before = findings.size();
  for (const std::string& address : graphics.driverless) {
    findings.push_back(
        Warning("devices", Format("the GPU at {} has no kernel driver", Printable(address)),
                "install its driver and firmware (firmware-amd-graphics, nvidia-driver)"));
  }
  for (const DeviceNodeFacts& node : graphics.nodes) {
    if (node.is_usable) continue;
    const std::string group = node.group.empty() ? "render" : node.group;
    findings.push_back(
        Warning("devices", Format("this user may not use {}", Printable(node.path)),
                Format("sudo usermod -aG {} $USER, then log in again", ShellWord(group))));
  }
  AddDrivers(graphics, findings);
  for (const CardFacts& card : graphics.cards) {
    AddMemory(card, findings);
    AddClock(card, findings);
  }
  std::vector<std::string> found;
  for (const DeviceInfo& device : graphics.devices) {
    if (device.kind == DeviceKind::kCpu) continue;
    found.push_back(Format("{} ({}, {} free{})", device.name, Printable(device.description),
                           FormatBytes(device.memory_free),
                           device.kind == DeviceKind::kSoftware ? ", in software" : ""));
  }
  if (!found.empty()) {
    findings.push_back(Fine("devices", Joined(found)));
  } else if (findings.size() == before) {
    findings.push_back(Fine("devices", "no GPU: the CPU computes"));
  }
}

}  // namespace moestro
