// SPDX-License-Identifier: MIT
#include "doctor/read_model.h"

#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/input_file.h"
#include "base/number.h"
#include "base/text.h"
#include "core/extent.h"
#include "doctor/access.h"
#include "store/block_reader.h"
#include "store/open_files.h"
#include "store/probe.h"

namespace moestro {
namespace {

namespace fs = std::filesystem;

constexpr int kMostLinks = 40;            // the kernel's limit
constexpr size_t kMostModels = 256;       // models of a folder that are examined
constexpr size_t kMountTable = 4 * kMiB;  // containers may have thousands of mounts

std::optional<AccessList> ReadAccessList(const std::string& path) {
  std::array<char, 4096> bytes{};
  const ssize_t n = ::getxattr(path.c_str(), "system.posix_acl_access", bytes.data(), bytes.size());
  if (n <= 0) return std::nullopt;
  return ParseAccessList({bytes.data(), static_cast<size_t>(n)});
}

PathStep StepOf(const std::string& path, const struct stat& info) {
  return {.path = path,
          .owner = info.st_uid,
          .group = info.st_gid,
          .mode = info.st_mode & 0777U,
          .list = ReadAccessList(path),
          .is_folder = S_ISDIR(info.st_mode)};
}

void AddStep(std::vector<PathStep>& steps, PathStep step) {
  const auto same = std::ranges::find(steps, step.path, &PathStep::path);
  if (same == steps.end()) steps.push_back(std::move(step));
}

// Puts the parts of `path` in front of those still to be walked, in the path's order.
void Put(const fs::path& path, std::deque<std::string>& ahead) {
  std::vector<std::string> parts;
  for (const fs::path& part : path.relative_path()) parts.push_back(part.string());
  ahead.insert(ahead.begin(), parts.begin(), parts.end());
}

// Models of a folder; nullopt: this process may not list the folder.
std::optional<std::vector<std::string>> ModelsIn(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (paths.size() == kMostModels) break;
    if (entry->path().extension() == ".gguf") paths.push_back(entry->path().string());
  }
  if (error) return std::nullopt;
  std::ranges::sort(paths);
  return paths;
}

std::vector<uint32_t> GroupsOfUser(const passwd& entry) {
  int count = 64;
  std::vector<gid_t> groups(static_cast<size_t>(count));
  if (::getgrouplist(entry.pw_name, entry.pw_gid, groups.data(), &count) < 0) {
    groups.resize(static_cast<size_t>(std::max(count, 1)));
    if (::getgrouplist(entry.pw_name, entry.pw_gid, groups.data(), &count) < 0) count = 0;
  }
  groups.resize(static_cast<size_t>(count));
  return {groups.begin(), groups.end()};
}

// Walks to each file of a named folder.
void WalkFolder(const std::string& folder, const std::vector<std::string>& files,
                ModelFacts& facts) {
  facts.steps = WalkPath(folder);
  std::error_code error;
  const std::string inside = fs::canonical(folder, error).string() + "/";
  for (const std::string& file : files) {
    for (PathStep& step : WalkPath(file)) {
      step.is_foreign = !step.path.starts_with(inside);
      AddStep(facts.steps, std::move(step));
    }
  }
}

void ReadDirect(const std::vector<std::string>& paths, ModelFacts& facts) {
  if (paths.empty()) return;
  const auto files = OpenFiles::Open(paths);
  if (!files) {
    facts.error = files.error().message;
    return;
  }
  facts.direct = DirectReads::kTaken;
  for (size_t i = 0; i < files->size(); ++i) {
    if (!(*files)[i].is_direct) facts.direct = DirectReads::kRefused;
  }
}

}  // namespace

std::optional<double> MeasureReads(const std::string& path) {
  constexpr uint64_t kLeast = 16 * kMiB;  // fewer bytes may lie in a disk's own memory
  constexpr double kSeconds = 0.5;
  std::error_code error;
  const uint64_t bytes = fs::file_size(path, error);
  if (error || bytes < kLeast) return std::nullopt;
  const auto reader = OpenReader({}, {path});
  if (!reader) return std::nullopt;
  const Extent whole{.file = 0, .offset = 0, .length = bytes};
  const auto probe = ProbeBandwidth(**reader, {&whole, 1}, {.reads = {}, .most_seconds = kSeconds});
  return probe ? std::optional(probe->bytes_per_second) : std::nullopt;
}

std::vector<PathStep> WalkPath(const std::string& path) {
  std::vector<PathStep> steps;
  std::error_code error;
  const fs::path whole = fs::absolute(path, error);
  std::deque<std::string> ahead;
  Put(whole, ahead);
  fs::path here = "/";
  for (int links = 0; links <= kMostLinks;) {
    struct stat info = {};
    if (::lstat(here.c_str(), &info) != 0) return steps;
    if (S_ISLNK(info.st_mode)) {
      const fs::path target = fs::read_symlink(here, error);
      if (error) return steps;
      Put(target, ahead);
      here = target.is_absolute() ? fs::path("/") : here.parent_path();
      ++links;
    } else {
      AddStep(steps, StepOf(here.string(), info));
    }
    while (!ahead.empty() && (ahead.front().empty() || ahead.front() == ".")) ahead.pop_front();
    if (ahead.empty()) break;
    here = ahead.front() == ".." ? here.parent_path() : here / ahead.front();
    ahead.pop_front();
  }
  if (ahead.empty() && !steps.empty()) {
    const auto target = std::ranges::find(steps, here.string(), &PathStep::path);
    if (target != steps.end()) target->is_target = true;
  }
  return steps;
}

DiskFacts ReadDisk(const std::string& root, const Mount& mount) {
  fs::path folder;
  if (mount.major != 0) {
    folder = Format("{}/sys/dev/block/{}:{}", root, mount.major, mount.minor);
  } else if (mount.source.starts_with("/dev/")) {
    // File systems over several disks have no number of one.
    std::error_code ignored;
    const fs::path source = fs::weakly_canonical(mount.source, ignored);
    folder = fs::path(root + "/sys/class/block") / source.filename();
  } else {
    return {};
  }
  std::error_code error;
  folder = fs::canonical(folder, error);
  if (error) return {};
  if (fs::exists(folder / "partition", error)) folder = folder.parent_path();
  DiskFacts disk{.name = folder.filename().string()};
  const std::string rotational = ReadWord((folder / "queue/rotational").string());
  if (rotational == "0" || rotational == "1") disk.is_rotational = rotational == "1";
  if (disk.name.starts_with("mmcblk")) {
    const std::string type = ReadWord((folder / "device/type").string());
    disk.card = type == "MMC" ? type : "SD";
  }
  return disk;
}

UserFacts FindUser(const std::string& name) {
  const bool is_number = !name.empty() && name.size() < 10 &&
                         std::ranges::all_of(name, [](unsigned char c) { return std::isdigit(c); });
  passwd entry = {};
  passwd* found = nullptr;
  std::vector<char> memory(16 * kKiB);
  uint32_t id = ::geteuid();
  if (is_number) std::from_chars(name.data(), name.data() + name.size(), id);
  if (name.empty() || is_number) {
    ::getpwuid_r(id, &entry, memory.data(), memory.size(), &found);
  } else {
    ::getpwnam_r(name.c_str(), &entry, memory.data(), memory.size(), &found);
  }
  if (found != nullptr) {
    return {.name = found->pw_name, .id = found->pw_uid, .groups = GroupsOfUser(*found)};
  }
  if (name.empty() || is_number) {
    return {.name = std::to_string(id), .id = id, .groups = {}, .is_known = true};
  }
  constexpr uint32_t kNobody = UINT32_MAX - 1;
  return {.name = name, .id = kNobody, .groups = {}, .is_known = false};
}

ModelFacts ReadModel(const std::string& root, const std::string& path, const std::string& user) {
  ModelFacts facts{.path = path, .user = FindUser(user)};
  std::error_code error;
  const bool is_folder = fs::is_directory(path, error);
  std::vector<std::string> files;
  if (is_folder) {
    if (auto models = ModelsIn(path)) {
      facts.models = models->size();
      files = *std::move(models);
    }
    WalkFolder(path, files, facts);
  } else {
    files = PartsOfSplit(path);
    for (const std::string& file : files) {
      for (PathStep& step : WalkPath(file)) AddStep(facts.steps, std::move(step));
    }
  }
  ReadDirect(files, facts);
  const fs::path real = fs::canonical(path, error);
  if (error) return facts;
  const auto table = ReadSmallFile(root + "/proc/self/mountinfo", kMountTable);
  const auto mount = FindMount(ParseMounts(table.value_or("")), real.string());
  if (!mount) return facts;
  facts.file_system = mount->file_system;
  facts.mount = mount->point;
  facts.mount_options = mount->options;
  facts.disk = ReadDisk(root, *mount);
  if (facts.direct == DirectReads::kTaken) facts.disk.rate = MeasureReads(files.front());
  return facts;
}

}  // namespace moestro
