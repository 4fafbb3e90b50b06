// SPDX-License-Identifier: MIT
#include "doctor/diagnose.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/number.h"
#include "base/terminal.h"
#include "base/text.h"
#include "doctor/access.h"
#include "doctor/machine_findings.h"

namespace moestro {

Findings Diagnose(const SystemFacts& facts) {
  Findings findings;
  if (facts.model) AddModelFindings(*facts.model, findings);
  AddReaderFindings(facts, findings);
  AddMemoryFindings(facts, findings);
  AddFolderFindings(facts.folders, findings);
  AddProcessorFindings(facts, findings);
  AddSoftwareFindings(facts, findings);
  AddGraphicsFindings(facts, findings);
  return findings;
}

Verdict WorstOf(const Findings& findings) {
  Verdict worst = Verdict::kOk;
  for (const Finding& finding : findings) worst = std::max(worst, finding.verdict);
  return worst;
}

namespace {

enum class FileSystemKind : uint8_t { kDisk, kNetwork, kFuse, kOverlay, kMemory, kImage };

FileSystemKind KindOf(std::string_view type) {
  constexpr std::array<std::string_view, 12> kNetwork = {
      "nfs", "nfs4", "cifs", "smb3",   "smbfs",     "ceph",
      "afs", "9p",   "ncp",  "lustre", "glusterfs", "virtiofs"};
  constexpr std::array<std::string_view, 6> kNetworkFuse = {
      "fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.rclone", "fuse.gcsfuse", "fuse.juicefs"};
  if (std::ranges::contains(kNetwork, type) || std::ranges::contains(kNetworkFuse, type)) {
    return FileSystemKind::kNetwork;
  }
  if (type.starts_with("fuse")) return FileSystemKind::kFuse;
  if (type == "overlay" || type == "aufs") return FileSystemKind::kOverlay;
  if (type == "tmpfs" || type == "ramfs") return FileSystemKind::kMemory;
  if (type == "squashfs" || type == "erofs" || type == "iso9660") return FileSystemKind::kImage;
  return FileSystemKind::kDisk;
}

bool HasOption(std::string_view options, std::string_view name) {
  while (!options.empty()) {
    const std::string_view option = options.substr(0, options.find(','));
    options.remove_prefix(std::min(option.size() + 1, options.size()));
    if (option.starts_with(name)) return true;
  }
  return false;
}

void AddFileSystem(const ModelFacts& model, Findings& findings) {
  if (model.file_system.empty()) return;
  const std::string where =
      Format("the model lies on {} ({})", Printable(model.file_system), Printable(model.mount));
  const std::string copy = "copy the model to a local disk (ext4, xfs)";
  switch (KindOf(model.file_system)) {
    case FileSystemKind::kNetwork:
      findings.push_back(Warning("file system", where + ": experts come over a network", copy));
      return;
    case FileSystemKind::kFuse:
      findings.push_back(
          Warning("file system", where + ": every read passes through a process of its own", copy));
      return;
    case FileSystemKind::kOverlay:
      findings.push_back(Warning("file system", where + ": a container's layers",
                                 "keep the model in a volume: -v /models:/models"));
      return;
    case FileSystemKind::kMemory:
      findings.push_back(Warning(
          "file system", where + ": the whole file takes memory that experts could have", copy));
      return;
    case FileSystemKind::kImage:
      findings.push_back(
          Warning("file system", where + ": an image that is unpacked on the way", copy));
      return;
    case FileSystemKind::kDisk:
      break;
  }
  if (model.file_system == "btrfs" && HasOption(model.mount_options, "compress")) {
    findings.push_back(
        Warning("file system", where + ", which compresses: reads are unpacked",
                Format("chattr +m {}, then copy the file once", ShellWord(model.path))));
    return;
  }
  findings.push_back(Fine("file system", where));
}

// Virtual disks call themselves rotational whatever is behind them.
bool IsVirtual(std::string_view disk) { return disk.starts_with("vd") || disk.starts_with("xvd"); }

// "; it gave 40 MiB/s" behind a disk's name.
std::string MeasuredRate(const DiskFacts& disk) {
  if (!disk.rate) return "";
  return Format("; it gave {}/s", FormatBytes(static_cast<uint64_t>(*disk.rate)));
}

// Memory cards, and what boards have soldered in place of one.
void AddCard(const DiskFacts& disk, Findings& findings) {
  const bool is_soldered = disk.card == "MMC";
  findings.push_back(
      Warning("disk",
              Format("{} is {}{}: {}", Printable(disk.name), is_soldered ? "eMMC" : "an SD card",
                     MeasuredRate(disk),
                     is_soldered ? "most give 100 to 300 MB/s, a tenth of an SSD's"
                                 : "most give 20 to 90 MB/s, a fiftieth of an SSD's"),
              "move the model to an SSD (M.2, or USB 3), or give all experts room (--ram)"));
}

void AddDisk(const ModelFacts& model, Findings& findings) {
  constexpr double kSlow = 200e6;  // bytes per second: half of a SATA SSD, and more than any card
  const DiskFacts& disk = model.disk;
  if (disk.name.empty()) return;
  const std::string name = Printable(disk.name);
  if (!disk.card.empty()) {
    AddCard(disk, findings);
  } else if (disk.rate && *disk.rate < kSlow && !disk.is_rotational.value_or(false)) {
    findings.push_back(Warning(
        "disk", name + " is slow" + MeasuredRate(disk) + ", in reads of 1 MiB",
        "move the model to an SSD that is not behind a slow bus (USB 2), or give all experts room "
        "(--ram)"));
  } else if (disk.name.starts_with("loop")) {
    findings.push_back(Warning("disk", name + " is a file on another disk: reads go through both",
                               "keep the model on the other disk itself"));
  } else if (IsVirtual(disk.name)) {
    findings.push_back(
        Fine("disk", disk.rate ? name + " is virtual" + MeasuredRate(disk)
                               : name + " is virtual; 'moestro bench' shows what it gives"));
  } else if (disk.is_rotational.value_or(false)) {
    findings.push_back(Warning("disk",
                               name + " turns" + MeasuredRate(disk) +
                                   ": a hundredth of an SSD's speed where experts are missing",
                               "move the model to an SSD, or give all experts room (--ram)"));
  } else {
    findings.push_back(
        Fine("disk", name + (disk.is_rotational ? " does not turn" : " does not say what it is") +
                         MeasuredRate(disk)));
  }
}

void AddDirectReads(const ModelFacts& model, Findings& findings) {
  if (model.direct == DirectReads::kTaken) {
    findings.push_back(Fine("direct reads", "O_DIRECT works on the model's file system"));
  } else if (model.direct == DirectReads::kRefused) {
    findings.push_back(Warning(
        "direct reads",
        "O_DIRECT is refused: reads are copied through the page cache, which costs a core's "
        "time and memory",
        "copy the model to ext4 or xfs on a local disk"));
  }
}

// Advice for a gap. A service whose user exists only while it runs cannot be named in a list, so it
// gets chmod. No advice opens folders that systemd closes on purpose, nor a file that only a link
// in some user's folder names.
std::string Remedy(const UserFacts& user, const AccessGap& gap) {
  if (IsPrivateRoot(gap.path)) {
    return "keep the model outside of services' own folders, which systemd keeps closed";
  }
  if (gap.is_foreign) return "keep the file itself in the folder, instead of a link that leads out";
  const std::string path = ShellWord(gap.path);
  const std::string chmod = Format("chmod o+{} {}", gap.bits, path);
  if (IsService(user)) return chmod;
  return Format("setfacl -m u:{}:{} {}, or {}", ShellWord(user.name), gap.bits, path, chmod);
}

void AddHidden(const ServiceView& view, Findings& findings) {
  if (view.hidden.empty()) return;
  const std::string move = "move the model to /var/lib/moestro";
  findings.push_back(Fault(
      "access",
      Format("the service does not see {}: its unit hides it ({})", Printable(view.hidden, 4096),
             view.setting),
      view.setting == "ProtectHome"
          ? move + ", or write ProtectHome=read-only below [Service] in 'systemctl edit moestro'"
          : move));
}

void AddAccess(const ModelFacts& model, Findings& findings) {
  const UserFacts& user = model.user;
  if (user.name.empty() || model.steps.empty()) return;
  const std::string name = Printable(user.name);
  const ServiceView view = ViewOf(user, model.steps);
  AddHidden(view, findings);
  for (const AccessGap& gap : FindGaps(user, view.steps)) {
    const std::string_view verb = gap.bits == "x" ? "pass" : "read";
    findings.push_back(Fault("access",
                             Format("user {} may not {} {}", name, verb, Printable(gap.path, 4096)),
                             Remedy(user, gap)));
  }
  const bool is_seen = std::ranges::any_of(model.steps, &PathStep::is_target);
  const bool has_gap = !findings.empty() && findings.back().check == "access";
  if (!is_seen && model.error.empty()) {
    findings.push_back(Warning("access", "this user may not look that far", "ask as root"));
  } else if (is_seen && !has_gap) {
    findings.push_back(
        Fine("access",
             Format("user {} may read the model{}", name,
                    user.is_known ? "" : " (there is no such user yet; judged as a stranger)")));
  }
}

}  // namespace

void AddModelFindings(const ModelFacts& model, Findings& findings) {
  AddAccess(model, findings);
  if (!model.error.empty()) {
    findings.push_back(Fault("model", Printable(model.error, 4096),
                             "name a GGUF file, or the first of its parts"));
    return;
  }
  if (model.models == 0U) {
    findings.push_back(
        Warning("model", Format("there is no GGUF file in {}", Printable(model.path, 4096)),
                "put one there, or name the file itself; folders in it are not looked into"));
  }
  AddDirectReads(model, findings);
  AddFileSystem(model, findings);
  AddDisk(model, findings);
}

}  // namespace moestro
