// SPDX-License-Identifier: MIT
#include "doctor/diagnose.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/number.h"

namespace moestro {
namespace {

// A machine with nothing to complain of.
SystemFacts GoodFacts() {
  SystemFacts facts;
  facts.processor = {.online = 8, .allowed = 8, .governor = "schedutil", .has_avx2 = true};
  facts.memory = {.machine = 32 * kGiB,
                  .machine_free = 24 * kGiB,
                  .here_free = 24 * kGiB,
                  .transparent_pages = "madvise",
                  .lockable = UINT64_MAX};
  facts.ggml = {.libraries = {{.name = "ggml", .built = "0.27.0", .running = "0.27.0"}},
                .plug_in_folder = "/plug-ins",
                .variants = {{.name = "haswell", .score = 64}, {.name = "zen4", .score = 0}}};
  facts.folders = {
      {.purpose = "what is kept", .path = "/c", .available = 5 * kGiB, .wanted = kGiB}};
  facts.model = ModelFacts{
      .path = "/models/a.gguf",
      .direct = DirectReads::kTaken,
      .file_system = "ext4",
      .mount = "/models",
      .disk = {.name = "nvme0n1", .is_rotational = false},
      .steps = {{.path = "/models", .mode = 0755},
                {.path = "/models/a.gguf", .mode = 0644, .is_folder = false, .is_target = true}},
      .user = {.name = "anna", .id = 1000}};
  return facts;
}

// The worst finding of a check; kOk and no text if there is none.
Finding Worst(const SystemFacts& facts, const std::string& check) {
  Finding worst;
  for (const Finding& finding : Diagnose(facts)) {
    if (finding.check != check) continue;
    if (worst.text.empty() || finding.verdict > worst.verdict) worst = finding;
  }
  return worst;
}

void ExpectWarning(const SystemFacts& facts, const std::string& check, const std::string& text,
                   const std::string& remedy) {
  const Finding finding = Worst(facts, check);
  EXPECT_EQ(finding.verdict, Verdict::kWarn) << check;
  EXPECT_TRUE(finding.text.contains(text)) << finding.text;
  EXPECT_TRUE(finding.remedy.contains(remedy)) << finding.remedy;
}

TEST(Diagnose, AGoodMachineIsAllWell) {
  for (const Finding& finding : Diagnose(GoodFacts())) {
    EXPECT_EQ(finding.verdict, Verdict::kOk) << finding.check << ": " << finding.text;
    EXPECT_EQ(finding.remedy, "");
  }
  EXPECT_EQ(WorstOf(Diagnose(GoodFacts())), Verdict::kOk);
}

// Of a machine that tells nothing, nothing bad is known.
TEST(Diagnose, NothingKnownIsNothingBad) {
  EXPECT_LT(WorstOf(Diagnose({})), Verdict::kBad);
  SystemFacts facts;
  facts.model = ModelFacts();
  EXPECT_LT(WorstOf(Diagnose(facts)), Verdict::kBad);
}

TEST(Diagnose, EveryTroubleHasARemedyAndIsOneLine) {
  SystemFacts facts = GoodFacts();
  facts.ring = {.state = RingState::kFails, .error = "a\nb"};
  facts.memory.transparent_pages = "never";
  facts.memory.here_free = 1;
  facts.model->error = "cannot open \n\x1b";
  facts.model->steps[1].mode = 0;
  facts.sandbox.container = std::string(1000, '\n');
  facts.graphics.driverless = {"0000:\n"};
  facts.graphics.cards = {{.address = "0000:\n",
                           .memory = kGiB,
                           .visible = kMiB,
                           .slowed_by = {"a\nb"},
                           .level = "low",
                           .power_limit = 1,
                           .usual_power = 9}};
  for (const Finding& finding : Diagnose(facts)) {
    EXPECT_EQ(finding.remedy.empty(), finding.verdict == Verdict::kOk) << finding.text;
    for (const std::string& line : {finding.text, finding.remedy}) {
      EXPECT_TRUE(std::ranges::all_of(line, [](char c) { return c >= ' '; })) << line;
    }
  }
}

TEST(Diagnose, RingsThatAreMissingOrForbidden) {
  SystemFacts facts = GoodFacts();
  facts.ring.state = RingState::kMissing;
  ExpectWarning(facts, "io_uring", "pread", "kernel from 5.19");
  facts.ring.state = RingState::kForbidden;
  ExpectWarning(facts, "io_uring", "forbidden", "security policy");
  facts.sandbox.has_filter = true;
  ExpectWarning(facts, "io_uring", "forbidden", "seccomp profile");
  facts.ring.switched_off = 2;
  ExpectWarning(facts, "io_uring", "forbidden", "kernel.io_uring_disabled=0");
  facts.ring = {.state = RingState::kFails, .error = "Cannot allocate memory"};
  ExpectWarning(facts, "io_uring", "Cannot allocate memory", "ulimit -l");
}

TEST(Diagnose, CardsAndSlowDisks) {
  SystemFacts facts = GoodFacts();
  facts.model->disk = {.name = "mmcblk0", .is_rotational = false, .card = "SD"};
  ExpectWarning(facts, "disk", "mmcblk0 is an SD card", "SSD");
  facts.model->disk.rate = 41e6;
  ExpectWarning(facts, "disk", "gave 39.1 MiB/s", "--ram");
  facts.model->disk.card = "MMC";
  ExpectWarning(facts, "disk", "eMMC", "SSD");
  facts.model->disk = {.name = "sda", .is_rotational = false, .rate = 35e6};
  ExpectWarning(facts, "disk", "sda is slow; it gave 33.4 MiB/s", "USB 2");
  facts.model->disk = {.name = "vda", .is_rotational = true, .rate = 2e9};
  EXPECT_EQ(Worst(facts, "disk").verdict, Verdict::kOk);
  facts.model->disk = {.name = "nvme0n1", .is_rotational = false, .rate = 450e6};
  EXPECT_EQ(Worst(facts, "disk").verdict, Verdict::kOk);
  EXPECT_TRUE(Worst(facts, "disk").text.contains("429.2 MiB/s")) << Worst(facts, "disk").text;
}

TEST(Diagnose, HeatAndWeakSupplies) {
  SystemFacts facts = GoodFacts();
  facts.processor.hottest = 20.0;
  EXPECT_EQ(Worst(facts, "heat").verdict, Verdict::kOk);
  facts.processor.hottest = 4.0;
  ExpectWarning(facts, "heat", "4 degrees are left", "fan");
  facts.processor.slowed_by = {"cpufreq-cpu0"};
  ExpectWarning(facts, "heat", "held down against heat (cpufreq-cpu0)", "fan");
  facts = GoodFacts();
  facts.processor.has_low_voltage = true;
  ExpectWarning(facts, "heat", "voltage", "power supply");
}

TEST(Diagnose, TwoKindsOfCores) {
  SystemFacts facts = GoodFacts();
  facts.processor.fast = 4;
  EXPECT_EQ(WorstOf(Diagnose(facts)), Verdict::kOk);
  const Findings all = Diagnose(facts);
  EXPECT_TRUE(std::ranges::any_of(all, [](const Finding& finding) {
    return finding.check == "processors" && finding.text.contains("4 of these CPUs are fast");
  }));
}

TEST(Diagnose, MemoryThatIsNotPromised) {
  SystemFacts facts = GoodFacts();
  facts.memory.promised = 30 * kGiB;
  EXPECT_EQ(Worst(facts, "memory").verdict, Verdict::kOk);
  facts.memory.promised = 4 * kGiB;
  facts.memory.here_free = 4 * kGiB;
  ExpectWarning(facts, "memory", "promises 4.0 GiB more at most", "vm.overcommit_memory=0");
  for (const Finding& finding : Diagnose(facts)) {
    EXPECT_FALSE(finding.text.contains("cgroup")) << finding.text;
  }
}

TEST(Diagnose, SwapOnACard) {
  SystemFacts facts = GoodFacts();
  facts.memory.swap_total = facts.memory.swap_free = kGiB;
  facts.memory.swaps = {"/dev/zram0"};
  EXPECT_EQ(Worst(facts, "swap").verdict, Verdict::kOk);
  facts.memory.swaps = {"/dev/zram0", "/dev/mmcblk0p2"};
  ExpectWarning(facts, "swap", "card", "zram");
}

TEST(Diagnose, FileSystemsThatAreSlow) {
  const auto with = [](const std::string& type) {
    SystemFacts facts = GoodFacts();
    facts.model->file_system = type;
    return facts;
  };
  ExpectWarning(with("nfs4"), "file system", "network", "local disk");
  ExpectWarning(with("fuse.sshfs"), "file system", "network", "local disk");
  ExpectWarning(with("fuseblk"), "file system", "process of its own", "local disk");
  ExpectWarning(with("overlay"), "file system", "layers", "-v /models");
  ExpectWarning(with("tmpfs"), "file system", "takes memory", "local disk");
  ExpectWarning(with("squashfs"), "file system", "unpacked", "local disk");
  SystemFacts packed = with("btrfs");
  EXPECT_EQ(Worst(packed, "file system").verdict, Verdict::kOk);
  packed.model->mount_options = "rw,compress=zstd:3";
  ExpectWarning(packed, "file system", "compresses", "chattr +m /models/a.gguf");
}

TEST(Diagnose, DisksThatTurnOrAreFiles) {
  SystemFacts facts = GoodFacts();
  facts.model->disk = {.name = "sda", .is_rotational = true};
  ExpectWarning(facts, "disk", "turns", "SSD");
  facts.model->disk = {.name = "loop3", .is_rotational = false};
  ExpectWarning(facts, "disk", "another disk", "itself");
  facts.model->disk = {.name = "vda", .is_rotational = true};
  EXPECT_EQ(Worst(facts, "disk").verdict, Verdict::kOk);
  facts.model->direct = DirectReads::kRefused;
  ExpectWarning(facts, "direct reads", "refused", "ext4");
}

TEST(Diagnose, AModelThatTheServiceMayNotReadIsBad) {
  SystemFacts facts = GoodFacts();
  facts.model->steps[0].mode = 0700;
  facts.model->steps[1].mode = 0600;
  const Findings findings = Diagnose(facts);
  EXPECT_EQ(WorstOf(findings), Verdict::kBad);
  ASSERT_GE(findings.size(), 2U);
  EXPECT_EQ(findings[0].text, "user anna may not pass /models");
  EXPECT_EQ(findings[0].remedy, "setfacl -m u:anna:x /models, or chmod o+x /models");
  EXPECT_EQ(findings[1].text, "user anna may not read /models/a.gguf");
  facts.model->user.is_known = false;  // no list can name it
  EXPECT_EQ(Diagnose(facts)[0].remedy, "chmod o+x /models");
  facts.model->user = {.name = "moestro", .id = 61300};  // nor one that changes
  EXPECT_EQ(Diagnose(facts)[0].remedy, "chmod o+x /models");
}

TEST(Diagnose, WhatAUnitHidesIsBadAndNothingIsOpenedForIt) {
  SystemFacts facts = GoodFacts();
  facts.model->user = {.name = "moestro", .id = 4'000'000, .groups = {}, .is_known = false};
  const std::string home = "/root";
  facts.model->steps = {
      {.path = home, .mode = 0700},
      {.path = home + "/a.gguf", .mode = 0600, .is_folder = false, .is_target = true}};
  const Findings findings = Diagnose(facts);
  EXPECT_EQ(findings[0].text,
            "the service does not see " + home + "/a.gguf: its unit hides it (ProtectHome)");
  EXPECT_TRUE(findings[0].remedy.contains("/var/lib/moestro"));
  EXPECT_TRUE(findings[0].remedy.contains("ProtectHome=read-only"));
  for (const Finding& finding : findings) EXPECT_FALSE(finding.remedy.contains("chmod"));
}

TEST(Diagnose, NobodyIsToldToOpenServicesFolders) {
  SystemFacts facts = GoodFacts();
  facts.model->steps = {{.path = "/var/lib/private", .mode = 0700},
                        {.path = "/var/lib/private/moestro", .mode = 0755}};
  EXPECT_EQ(Worst(facts, "access").text, "user anna may not pass /var/lib/private");
  EXPECT_FALSE(Worst(facts, "access").remedy.contains("chmod"));
  EXPECT_FALSE(Worst(facts, "access").remedy.contains("setfacl"));
}

TEST(Diagnose, NobodyIsToldToOpenWhatALinkInAFolderNames) {
  SystemFacts facts = GoodFacts();
  facts.model->steps[1] = {.path = "/etc/shadow",
                           .mode = 0640,
                           .is_folder = false,
                           .is_target = true,
                           .is_foreign = true};
  EXPECT_EQ(Worst(facts, "access").text, "user anna may not read /etc/shadow");
  EXPECT_FALSE(Worst(facts, "access").remedy.contains("/etc/shadow"));
}

TEST(Diagnose, NamesInRemediesAreThoseOfTheFilesAndPrintable) {
  SystemFacts facts = GoodFacts();
  facts.model->path = "/mod\xc3\xa8les/\n.gguf";
  facts.model->file_system = "btrfs";
  facts.model->mount_options = "compress=zstd";
  facts.model->steps[1].path = facts.model->path;
  facts.model->steps[1].mode = 0600;
  facts.folders[0] = {.purpose = "what is kept", .path = "/c\n", .is_writable = false};
  const std::string word = "$'/mod\\303\\250les/\\012.gguf'";
  EXPECT_TRUE(Worst(facts, "access").remedy.contains(word)) << Worst(facts, "access").remedy;
  ExpectWarning(facts, "file system", "compresses", word);
  ExpectWarning(facts, "space", "cannot be written", "$'/c\\012'");
}

TEST(Diagnose, AFolderWithoutAModelIsAWarning) {
  SystemFacts facts = GoodFacts();
  facts.model->models = 0;
  ExpectWarning(facts, "model", "no GGUF file", "put one there");
  facts.model->models = 1;
  EXPECT_EQ(Worst(facts, "model").text, "");
}

TEST(Diagnose, AModelThatCannotBeOpenedIsBad) {
  SystemFacts facts = GoodFacts();
  facts.model->error = "cannot open /models/a.gguf: No such file or directory";
  facts.model->steps.pop_back();
  EXPECT_EQ(Worst(facts, "model").verdict, Verdict::kBad);
  EXPECT_EQ(Worst(facts, "access").text, "");
  EXPECT_EQ(Worst(facts, "disk").text, "");
}

TEST(Diagnose, LimitsOfMemory) {
  SystemFacts facts = GoodFacts();
  facts.memory.here_free = kGiB / 2;
  ExpectWarning(facts, "memory", "cgroup", "memory.max");
  facts.memory.machine_free = kGiB / 2;
  ExpectWarning(facts, "memory", "512.0 MiB", "stop other programs");
  facts = GoodFacts();
  facts.memory.until_slowed = 4 * kGiB;
  ExpectWarning(facts, "memory", "slows", "memory.high");
  facts = GoodFacts();
  facts.memory.lockable = 8 * kMiB;
  EXPECT_TRUE(Worst(facts, "locked memory").text.contains("8.0 MiB"));
  facts.sandbox.is_root = true;
  EXPECT_TRUE(Worst(facts, "locked memory").text.contains("may be pinned for reads"));
}

TEST(Diagnose, PagesAndSwap) {
  SystemFacts facts = GoodFacts();
  facts.memory.transparent_pages = "never";
  ExpectWarning(facts, "huge pages", "off", "echo madvise");
  facts.memory.transparent_pages = "always";
  facts.memory.reserved_free = 8 * kGiB;
  ExpectWarning(facts, "huge pages", "reserved", "vm.nr_hugepages=0");
  facts.memory.swap_total = 8 * kGiB;
  facts.memory.swap_free = 8 * kGiB;
  EXPECT_EQ(Worst(facts, "swap").verdict, Verdict::kOk);
  facts.memory.swap_free = 2 * kGiB;
  ExpectWarning(facts, "swap", "6.0 GiB", "--ram");
  facts.memory.swap_free = UINT64_MAX;  // more than there is
  EXPECT_EQ(Worst(facts, "swap").verdict, Verdict::kOk);
}

TEST(Diagnose, ProcessorsThatAreTakenAway) {
  SystemFacts facts = GoodFacts();
  facts.processor.quota = 1.5;
  ExpectWarning(facts, "processors", "1.5 processors", "cpu.max");
  facts.processor.quota = 8;
  facts.processor.allowed = 4;
  EXPECT_EQ(Worst(facts, "processors").text, "this process may run on 4 of 8 CPUs");
}

TEST(Diagnose, GovernorsThatKeepTheClockLow) {
  SystemFacts facts = GoodFacts();
  facts.processor.governor = "powersave";
  ExpectWarning(facts, "governor", "powersave", "echo performance");
  facts.processor.governor_driver = "intel_pstate";  // where the name means something else
  facts.processor.energy_preference = "balance_performance";
  EXPECT_EQ(Worst(facts, "governor").verdict, Verdict::kOk);
  facts.processor.energy_preference = "balance_power";
  ExpectWarning(facts, "governor", "balance_power", "echo performance");
  facts.processor.governor = "";
  EXPECT_EQ(Worst(facts, "governor").verdict, Verdict::kOk);
}

TEST(Diagnose, MemoryNodes) {
  SystemFacts facts = GoodFacts();
  facts.numa.nodes = {{.id = 0, .cpus = {0}, .cores = 1, .has_memory = true},
                      {.id = 1, .cpus = {1}, .cores = 1, .has_memory = true}};
  ExpectWarning(facts, "memory nodes", "2", "numactl");
  facts.numa.is_whole = true;
  EXPECT_EQ(Worst(facts, "memory nodes").verdict, Verdict::kOk);
  facts.sandbox = {.container = "docker", .has_filter = true};
  ExpectWarning(facts, "memory nodes", "containers", "SYS_NICE");
}

TEST(Diagnose, VariablesOfOpenMpThatHurt) {
  const auto with = [](const std::string& name, const std::string& value) {
    SystemFacts facts = GoodFacts();
    facts.environment[name] = value;
    return facts;
  };
  for (const char* count : {"0", "infinite", "30000000", "", "-1"}) {
    const bool is_fine = std::string(count).empty();
    EXPECT_EQ(Worst(with("GOMP_SPINCOUNT", count), "threads").verdict,
              is_fine ? Verdict::kOk : Verdict::kWarn)
        << count;
  }
  EXPECT_EQ(Worst(with("GOMP_SPINCOUNT", "2000"), "threads").verdict, Verdict::kOk);
  SystemFacts ours = with("GOMP_SPINCOUNT", "0");
  ours.environment["MOESTRO_STARTED_AGAIN"] = "1";
  EXPECT_EQ(Worst(ours, "threads").verdict, Verdict::kOk);
  ExpectWarning(with("OMP_PROC_BIND", "close"), "threads", "one core", "unset OMP_PROC_BIND");
  EXPECT_EQ(Worst(with("OMP_PROC_BIND", "false"), "threads").verdict, Verdict::kOk);
  ExpectWarning(with("OMP_THREAD_LIMIT", "2"), "threads", "fewer", "unset");
  EXPECT_EQ(Worst(with("OMP_THREAD_LIMIT", "64"), "threads").verdict, Verdict::kOk);
  ExpectWarning(with("GOMP_CPU_AFFINITY", "0"), "threads", "bound", "unset");
  ExpectWarning(with("OMP_DYNAMIC", "true"), "threads", "takes threads", "unset");
}

TEST(Diagnose, LibrariesAndVariants) {
  SystemFacts facts = GoodFacts();
  facts.ggml.libraries[0].running = "0.28.1";
  ExpectWarning(facts, "libraries", "built with 0.27.0", "make build");
  EXPECT_TRUE(Worst(facts, "CPU variant").text.starts_with("haswell, the best of 1"));
  facts.ggml.variants[0].name = "sse42";
  ExpectWarning(facts, "CPU variant", "AVX2", "reinstall");
  facts.ggml.variants.clear();
  ExpectWarning(facts, "CPU variant", "plain code", "reinstall");
  facts.ggml.has_cpu = false;
  EXPECT_EQ(Worst(facts, "CPU variant").verdict, Verdict::kBad);
}

TEST(Diagnose, GraphicsThatNobodyUses) {
  SystemFacts facts = GoodFacts();
  EXPECT_EQ(Worst(facts, "devices").text, "no GPU: the CPU computes");
  facts.graphics.nodes = {{.path = "/dev/dri/renderD128", .is_usable = false, .group = "video"}};
  ExpectWarning(facts, "devices", "/dev/dri/renderD128", "usermod -aG video");
  facts.graphics.nodes[0].is_usable = true;
  ExpectWarning(facts, "devices", "no plug-in", "libggml0-backend-vulkan");
  facts.graphics.has_vulkan_plug_in = true;
  ExpectWarning(facts, "devices", "no Vulkan driver", "mesa-vulkan-drivers");
  facts.graphics.vulkan_drivers = 1;
  ExpectWarning(facts, "devices", "takes it", "vulkaninfo");
  facts.graphics.devices = {{.name = "Vulkan0", .kind = DeviceKind::kDiscrete}};
  EXPECT_EQ(Worst(facts, "devices").verdict, Verdict::kOk);
  facts.graphics.driverless = {"0000:01:00.0"};
  ExpectWarning(facts, "devices", "0000:01:00.0", "driver");
}

TEST(Diagnose, AnNvidiaDriverWithoutItsVulkanPart) {
  SystemFacts facts = GoodFacts();
  GraphicsFacts& graphics = facts.graphics;
  graphics.nodes = {{.path = "/dev/nvidia0"}};
  graphics.has_nvidia_driver = true;
  ExpectWarning(facts, "devices", "no plug-in", "libggml0-backend-vulkan");
  // Mesa's manifests are those of other makers' GPUs, and one of these may compute.
  graphics.has_vulkan_plug_in = true;
  graphics.vulkan_drivers = 9;
  ExpectWarning(facts, "devices", "no Vulkan part", "nvidia-vulkan-icd");
  graphics.devices = {
      {.name = "Vulkan0", .description = "Intel(R) Graphics", .kind = DeviceKind::kIntegrated}};
  ExpectWarning(facts, "devices", "no Vulkan part", "NVIDIA_DRIVER_CAPABILITIES");
  graphics.devices[0].description = "NVIDIA GeForce RTX 4070";
  EXPECT_EQ(Worst(facts, "devices").verdict, Verdict::kOk);
  graphics.devices.clear();
  graphics.has_nvidia_vulkan = true;
  ExpectWarning(facts, "devices", "takes it", "vulkaninfo");
}

TEST(Diagnose, CardsWhoseMemoryIsHidden) {
  SystemFacts facts = GoodFacts();
  facts.graphics.cards = {{.address = "0000:03:00.0", .memory = 16 * kGiB, .visible = 256 * kMiB}};
  CardFacts& card = facts.graphics.cards[0];
  ExpectWarning(facts, "devices", "shows 256.0 MiB of its 16.0 GiB", "Resizable BAR");
  const auto is_fine = [&] { return Worst(facts, "devices").verdict == Verdict::kOk; };
  card.visible = 16 * kGiB;
  EXPECT_TRUE(is_fine());
  card = {.address = "0000:00:02.0",
          .visible = 256 * kMiB};  // in the processor: no memory of its own
  EXPECT_TRUE(is_fine());
  card.is_nvidia = true;
  ExpectWarning(facts, "devices", "256.0 MiB of its memory", "Above 4G decoding");
  card.visible = 16 * kGiB;
  EXPECT_TRUE(is_fine());
  card.visible = 0;
  EXPECT_TRUE(is_fine());
}

TEST(Diagnose, CardsWhoseClockIsKeptDown) {
  SystemFacts facts = GoodFacts();
  const auto with = [&](CardFacts card) {
    card.address = "0000:03:00.0";
    facts.graphics.cards = {std::move(card)};
    return facts;
  };
  ExpectWarning(with({.slowed_by = {"thermal", "pl1"}}), "devices", "throttles now: thermal, pl1",
                "cooling");
  ExpectWarning(with({.hottest = -2.0}), "devices", "temperature", "fans");
  EXPECT_EQ(Worst(with({.hottest = 40.0}), "devices").verdict, Verdict::kOk);
  ExpectWarning(with({.power_limit = 150'000'000, .usual_power = 263'000'000}), "devices",
                "150 W of its usual 263", "power1_cap");
  EXPECT_EQ(
      Worst(with({.power_limit = 263'000'000, .usual_power = 263'000'000}), "devices").verdict,
      Verdict::kOk);
  EXPECT_EQ(Worst(with({.power_limit = 263'000'000}), "devices").verdict, Verdict::kOk);
  ExpectWarning(with({.level = "profile_min_sclk"}), "devices", "lowest clock", "echo auto");
  EXPECT_EQ(Worst(with({.level = "auto"}), "devices").verdict, Verdict::kOk);
}

TEST(Diagnose, FoldersThatAreFullOrClosed) {
  SystemFacts facts = GoodFacts();
  facts.folders[0].available = kMiB;
  ExpectWarning(facts, "space", "1.0 MiB left in /c", "free some space");
  facts.folders[0].is_writable = false;
  ExpectWarning(facts, "space", "cannot be written", "mkdir -p /c");
  facts.folders[0].path = "";
  ExpectWarning(facts, "space", "no folder", "HOME");
}

}  // namespace
}  // namespace moestro
