// SPDX-License-Identifier: MIT
#include "decide/devices/lane_planner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <vector>

#include "base/text.h"

namespace moestro {
namespace {

constexpr uint64_t kMillion = 1'000'000;

// Round numbers of the order of real machines, for experts of 3 MB: microseconds per row and MB.
LatencyModel Machine(double host_gbs, double device_gbs, double link_gbs) {
  return {.host = {.base = 5e-6, .per_byte = 1e-9 / host_gbs, .per_row = 0.25e-9 / host_gbs},
          .disk = {.base = 80e-6, .per_byte = 1e-9 / 2.0},
          .host_beside = 1.1,
          .devices = {{.compute = {.base = 2e-6,
                                   .per_byte = 1e-9 / device_gbs,
                                   .per_row = 0.005e-9 / device_gbs},
                       .copy = {.base = 10e-6, .per_byte = 1e-9 / link_gbs},
                       .launch = 30e-6,
                       .copy_beside = 1.1}}};
}
// The first one's CPU, disk and device, and the other's device.
LatencyModel Both(LatencyModel first, const LatencyModel& other) {
  first.devices.push_back(other.devices.front());
  return first;
}
const LatencyModel kSlowLink = Machine(20, 400, 6);
const LatencyModel kFastLink = Machine(20, 400, 50);
const LatencyModel kWeakCpu = Machine(4, 400, 12);
const LatencyModel kStrongCpu = Machine(200, 400, 12);
// One memory for both: a copy is as quick as reading it, and the device is little faster.
const LatencyModel kIntegrated = Machine(30, 45, 30);

// Eight experts of 3 MB, of which the device has the first `on_device`; all in memory.
std::vector<LaneJob> Jobs(uint32_t rows, size_t on_device, size_t n = 8) {
  std::vector<LaneJob> jobs(n, {.bytes = 3 * kMillion, .rows = rows});
  for (size_t i = 0; i < on_device; ++i) jobs[i].on_device = 0;
  return jobs;
}

using Rooms = std::vector<std::vector<uint32_t>>;  // [device][pool]

// "DDhhc": device, host, copied; "E" and "d": the second device.
std::string Letters(std::span<const Site> sites) {
  std::string letters;
  for (const Site& s : sites) {
    const char held = s.device == 0 ? 'D' : 'E';
    const char copied = s.device == 0 ? 'c' : 'd';
    letters += s.place == Place::kHost ? 'h' : s.place == Place::kDevice ? held : copied;
  }
  return letters;
}

std::string Auto(const LatencyModel& model, const std::vector<LaneJob>& jobs, uint32_t room = 64) {
  const Rooms rooms(model.devices.size(), {room});
  return Letters(PlanLanes(jobs, model, PlaceMode::kAuto, rooms).sites);
}

TEST(PlaceModes, ParseAndName) {
  for (const PlaceMode mode :
       {PlaceMode::kAuto, PlaceMode::kGpuCentric, PlaceMode::kCooperative, PlaceMode::kCpu}) {
    EXPECT_EQ(ParsePlaceMode(NameOf(mode)), mode);
  }
  const auto unknown = ParsePlaceMode("gpu");
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message.find("cooperative"), std::string::npos);
}

TEST(FixedModes, DoAsTheyAreCalled) {
  const std::vector<LaneJob> jobs = Jobs(1, 3);
  const auto places = [&](PlaceMode mode, uint32_t room) {
    return Letters(PlanLanes(jobs, kSlowLink, mode, Rooms{{room}}).sites);
  };
  EXPECT_EQ(places(PlaceMode::kCpu, 8), "hhhhhhhh");
  EXPECT_EQ(places(PlaceMode::kCooperative, 8), "DDDhhhhh");
  EXPECT_EQ(places(PlaceMode::kGpuCentric, 8), "DDDccccc");
  EXPECT_EQ(places(PlaceMode::kGpuCentric, 2), "DDDcchhh");  // no room for more
}

TEST(FixedModes, LeaveToTheCpuWhatTheDeviceCannotCompute) {
  std::vector<LaneJob> jobs = Jobs(1, 0, 3);
  jobs[1].pool = 1;
  const Rooms rooms = {{8, 0}};
  EXPECT_EQ(Letters(PlanLanes(jobs, kFastLink, PlaceMode::kGpuCentric, rooms).sites), "chc");
  EXPECT_EQ(Letters(PlanLanes(jobs, kWeakCpu, PlaceMode::kAuto, rooms).sites).at(1), 'h');
}

TEST(PriceLanes, AddsUpByHand) {
  const LatencyModel model{.host = {.per_byte = 1e-9},
                           .disk = {.per_byte = 2e-9},
                           .host_beside = 2.0,
                           .devices = {{.compute = {.per_byte = 0.1e-9},
                                        .copy = {.per_byte = 0.5e-9},
                                        .launch = 1e-3,
                                        .copy_beside = 3.0}}};
  std::vector<LaneJob> jobs(4, {.bytes = kMillion});
  jobs[0].on_device = 0;
  jobs[3].in_memory = false;
  const std::vector<Site> sites = {{Place::kDevice}, {Place::kCopied}, {}, {}};
  const LaneTimes t = PriceLanes(jobs, sites, model);
  EXPECT_DOUBLE_EQ(t.disk, 2e-3);
  EXPECT_DOUBLE_EQ(t.devices[0].copy, 1.5e-3);                   // beside the CPU
  EXPECT_DOUBLE_EQ(t.devices[0].compute, 1.5e-3 + 1e-3 + 1e-4);  // the first launch is over by then
  EXPECT_DOUBLE_EQ(t.host, 2e-3 + 2e-3);  // the second waits for the disk and not the first
  EXPECT_DOUBLE_EQ(t.seconds(), 4e-3);
  // Alone, nothing is slowed down.
  const std::vector<Site> all_host(4);
  EXPECT_DOUBLE_EQ(PriceLanes(jobs, all_host, model).host, 4e-3);
  EXPECT_DOUBLE_EQ(PriceLanes(jobs, all_host, model).devices[0].compute, 0.0);
}

TEST(PriceLanes, RowsThatLeaveTheFirstDeviceCrossABorder) {
  LatencyModel model = Both(kSlowLink, kSlowLink);
  model.border = 1e-3;
  const std::vector<LaneJob> jobs = Jobs(1, 1, 2);
  const auto border = [&](std::vector<Site> sites) {
    const LaneTimes times = PriceLanes(jobs, sites, model);
    LatencyModel without = model;
    without.border = 0.0;
    EXPECT_DOUBLE_EQ(times.seconds(), PriceLanes(jobs, sites, without).seconds() + times.border);
    return times.border;
  };
  const Site there{.place = Place::kDevice};
  EXPECT_EQ(border({there, {.place = Place::kCopied}}), 0.0);
  EXPECT_EQ(border({there, {}}), 1e-3);
  EXPECT_EQ(border({{}, {}}), 1e-3);
  EXPECT_EQ(border({there, {.place = Place::kCopied, .device = 1}}), 1e-3);
}

TEST(PriceLanes, TheDiskServesTheDeviceFirst) {
  LatencyModel model{.devices = {{}}};
  model.disk.per_byte = 1e-9;
  std::vector<LaneJob> jobs(2, {.bytes = kMillion, .in_memory = false});
  const std::vector<Site> sites = {{}, {Place::kCopied}};
  const LaneTimes t = PriceLanes(jobs, sites, model);
  EXPECT_DOUBLE_EQ(t.devices[0].copy, 1e-3);
  EXPECT_DOUBLE_EQ(t.host, 2e-3);
}

// Each has its own lane and its own link; the disk is the machine's.
TEST(PriceLanes, DevicesWorkSideBySide) {
  const LatencyModel model{
      .host = {.per_byte = 1e-9},
      .disk = {.per_byte = 2e-9},
      .host_beside = 2.0,
      .devices = {{.compute = {.per_byte = 0.1e-9}, .copy = {.per_byte = 0.5e-9}, .launch = 1e-3},
                  {.compute = {.per_byte = 0.4e-9}, .copy = {.per_byte = 1e-9}, .launch = 2e-3}}};
  std::vector<LaneJob> jobs(4, {.bytes = kMillion});
  jobs[0].on_device = 1;
  jobs[2].in_memory = jobs[3].in_memory = false;
  const std::vector<Site> sites = {
      {Place::kDevice, 1}, {Place::kCopied, 0}, {Place::kCopied, 1}, {Place::kCopied, 0}};
  const LaneTimes t = PriceLanes(jobs, sites, model);
  EXPECT_DOUBLE_EQ(t.disk, 4e-3);
  EXPECT_DOUBLE_EQ(t.devices[0].copy, 2e-3 + 0.5e-3);  // the first read is the first's
  EXPECT_DOUBLE_EQ(t.devices[0].compute, 2.5e-3 + 1e-3 + 2 * 0.1e-3);
  EXPECT_DOUBLE_EQ(t.devices[1].copy, 4e-3 + 1e-3);
  EXPECT_DOUBLE_EQ(t.devices[1].compute, 5e-3 + 2e-3 + 0.4e-3);
  EXPECT_DOUBLE_EQ(t.host, 0.0);
  EXPECT_DOUBLE_EQ(t.seconds(), 7.4e-3);
}

// How many of a plan's experts run where: "3D 4h 1c".
std::string Counts(const LatencyModel& model, uint32_t rows) {
  const std::string letters = Auto(model, Jobs(rows, 3));
  return Format("{}D {}h {}c", std::ranges::count(letters, 'D'), std::ranges::count(letters, 'h'),
                std::ranges::count(letters, 'c'));
}

// 8 experts of 3 MB, 3 of them on the device. In microseconds, beside each other: a copy takes 561,
// 77, 286, 286, 121; the CPU 171, 171, 831, 22, 116 for one row, and a quarter of that more for
// each row more.
TEST(AutoPlaces, OfMachinesByRows) {
  struct Line {
    const char* name;
    LatencyModel model;
    const char* rows_1;
    const char* rows_4;
    const char* rows_12;
    const char* rows_64;
    const char* rows_512;
  };
  const std::array lines = {
      Line{"slow link", kSlowLink, "3D 4h 1c", "3D 3h 2c", "3D 2h 3c", "3D 0h 5c", "3D 0h 5c"},
      Line{"fast link", kFastLink, "3D 2h 3c", "3D 1h 4c", "3D 0h 5c", "3D 0h 5c", "3D 0h 5c"},
      Line{"weak CPU", kWeakCpu, "3D 1h 4c", "3D 0h 5c", "3D 0h 5c", "3D 0h 5c", "3D 0h 5c"},
      Line{"strong CPU", kStrongCpu, "3D 5h 0c", "3D 5h 0c", "3D 4h 1c", "3D 3h 2c", "3D 0h 5c"},
      Line{"integrated", kIntegrated, "3D 3h 2c", "2D 3h 3c", "3D 1h 4c", "3D 0h 5c", "3D 0h 5c"},
  };
  for (const Line& line : lines) {
    EXPECT_EQ(Counts(line.model, 1), line.rows_1) << line.name;
    EXPECT_EQ(Counts(line.model, 4), line.rows_4) << line.name;
    EXPECT_EQ(Counts(line.model, 12), line.rows_12) << line.name;
    EXPECT_EQ(Counts(line.model, 64), line.rows_64) << line.name;
    EXPECT_EQ(Counts(line.model, 512), line.rows_512) << line.name;
  }
}

// By hand: 0 to 4 of four experts copied take 620, 512, 341, 289 and 348 us on the fast link.
TEST(AutoPlaces, ASlotHasItsPrice) {
  std::vector<LaneJob> jobs = Jobs(1, 0, 4);
  EXPECT_EQ(std::ranges::count(Auto(kFastLink, jobs), 'c'), 3);
  for (LaneJob& job : jobs) job.slot_prices = {100e-6};
  EXPECT_EQ(std::ranges::count(Auto(kFastLink, jobs), 'c'), 2);
  for (LaneJob& job : jobs) job.slot_prices = {1e-3};
  EXPECT_EQ(Auto(kFastLink, jobs), "hhhh");
  jobs[2].slot_prices = {0.0};
  EXPECT_EQ(Auto(kFastLink, jobs), "hhch");
}

// Experts of 3 MB in memory. In microseconds, beside each other: the CPU 831; a copy to the first
// device 286, to the second 561.
TEST(TwoDevices, TheFasterOneGetsMore) {
  const LatencyModel unequal = Both(Machine(4, 400, 12), kSlowLink);
  EXPECT_EQ(Auto(unequal, Jobs(1, 0, 4)), "cdch");
  EXPECT_EQ(Auto(unequal, Jobs(64, 0, 6)), "cdccdc");
  const Rooms rooms = {{8}, {8}};
  EXPECT_EQ(Letters(PlanLanes(Jobs(1, 0, 6), unequal, PlaceMode::kGpuCentric, rooms).sites),
            "cdccdc");
  // The other way round it is the second.
  const LatencyModel turned = Both(kSlowLink, Machine(4, 400, 12));
  EXPECT_EQ(Letters(PlanLanes(Jobs(1, 0, 6), turned, PlaceMode::kGpuCentric, rooms).sites),
            "dcddcd");
}

TEST(TwoDevices, WhoHasAnExpertComputesItOrTheCpuDoes) {
  std::vector<LaneJob> jobs = Jobs(1, 2, 6);
  jobs[2].on_device = jobs[3].on_device = 1;
  const LatencyModel both = Both(kSlowLink, kSlowLink);
  EXPECT_EQ(Letters(PlanLanes(jobs, both, PlaceMode::kCooperative, Rooms{{8}, {8}}).sites),
            "DDEEhh");
  // No room on the first: what is copied goes to the second.
  EXPECT_EQ(Letters(PlanLanes(jobs, both, PlaceMode::kGpuCentric, Rooms{{0}, {8}}).sites),
            "DDEEdd");
  EXPECT_EQ(Letters(PlanLanes(jobs, both, PlaceMode::kGpuCentric, Rooms{{0}, {1}}).sites),
            "DDEEdh");
}

TEST(TwoDevices, SlotsHavePricesOfTheirOwn) {
  const LatencyModel both = Both(kFastLink, kFastLink);
  std::vector<LaneJob> jobs = Jobs(1, 0, 1);
  EXPECT_EQ(Auto(both, jobs), "c");
  jobs[0].slot_prices = {1e-3, 0.0};
  EXPECT_EQ(Auto(both, jobs), "d");
  jobs[0].slot_prices = {1e-3, 1e-3};
  EXPECT_EQ(Auto(both, jobs), "h");
}

class AutoRows : public testing::TestWithParam<uint32_t> {
 protected:
  auto Pick(auto... values) {
    const std::array all{values...};
    return all[random_() % all.size()];
  }
  LatencyModel AnyMachine() {
    return Machine(Pick(2.0, 10.0, 40.0, 200.0), Pick(30.0, 400.0, 3000.0), Pick(3.0, 12.0, 50.0));
  }
  // Of two pools, on some of the devices; with prices of slots or without.
  std::vector<LaneJob> AnyJobs(uint32_t devices, bool has_prices) {
    std::vector<LaneJob> jobs(1 + random_() % 24);
    for (LaneJob& job : jobs) {
      job.bytes = kMillion * Pick(1U, 3U, 20U);
      job.rows = 1 + static_cast<uint32_t>(random_() % GetParam());
      job.in_memory = random_() % 3 > 0;
      if (random_() % 3 == 0) job.on_device = static_cast<uint32_t>(random_() % devices);
      job.pool = random_() % 2;
      for (uint32_t d = 0; has_prices && d < devices; ++d) {
        job.slot_prices.push_back(Pick(0.0, 1e-5, 1e-4, 1e-3));
      }
    }
    return jobs;
  }
  Rooms AnyRooms(uint32_t devices) {
    Rooms rooms(devices);
    for (std::vector<uint32_t>& its : rooms) {
      for (int p = 0; p < 2; ++p) its.push_back(static_cast<uint32_t>(random_() % 6));
    }
    return rooms;
  }
  // Every job where it may be, as far as there is room; the price is what the slots cost.
  static void ExpectSound(const LanePlan& plan, const std::vector<LaneJob>& jobs, Rooms rooms) {
    double price = 0.0;
    for (size_t i = 0; i < jobs.size(); ++i) {
      const Site& site = plan.sites[i];
      if (site.place == Place::kDevice) {
        EXPECT_EQ(jobs[i].on_device, site.device);
      } else if (site.place == Place::kCopied) {
        EXPECT_FALSE(jobs[i].on_device.has_value());
        EXPECT_GT(rooms[site.device][jobs[i].pool]--, 0U);
        if (!jobs[i].slot_prices.empty()) price += jobs[i].slot_prices[site.device];
      }
    }
    EXPECT_DOUBLE_EQ(plan.price, price);
  }
  std::mt19937 random_{GetParam()};
};

// Predicted cost: the layer's time and, in every other round, the prices of the slots. One to three
// devices of any speeds.
TEST_P(AutoRows, IsNeverPredictedToCostMoreThanAFixedMode) {
  for (int round = 0; round < 300; ++round) {
    LatencyModel model = AnyMachine();
    const uint32_t devices = 1 + static_cast<uint32_t>(round) % 3;
    while (model.devices.size() < devices) model = Both(model, AnyMachine());
    const std::vector<LaneJob> jobs = AnyJobs(devices, round % 2 == 1);
    const Rooms rooms = AnyRooms(devices);
    const LanePlan found = PlanLanes(jobs, model, PlaceMode::kAuto, rooms);
    for (const PlaceMode mode :
         {PlaceMode::kGpuCentric, PlaceMode::kCooperative, PlaceMode::kCpu}) {
      const LanePlan fixed = PlanLanes(jobs, model, mode, rooms);
      EXPECT_LE(found.cost(), fixed.cost() * (1 + 1e-9)) << NameOf(mode) << ", round " << round;
      if (round % 2 == 0) {
        EXPECT_LE(found.times.seconds(), fixed.times.seconds() * (1 + 1e-9)) << NameOf(mode);
      }
      ExpectSound(fixed, jobs, rooms);
    }
    // What it promises is what the lanes take.
    EXPECT_DOUBLE_EQ(found.times.seconds(), PriceLanes(jobs, found.sites, model).seconds());
    ExpectSound(found, jobs, rooms);
  }
}

// A second device is no harm: what it lacks need not go there, and what it has need not run there.
TEST_P(AutoRows, AnotherDeviceCostsNothing) {
  for (int round = 0; round < 100; ++round) {
    const LatencyModel one = AnyMachine();
    const LatencyModel two = Both(one, AnyMachine());
    std::vector<LaneJob> jobs = AnyJobs(1, false);
    const Rooms rooms = AnyRooms(2);
    const double alone =
        PlanLanes(jobs, one, PlaceMode::kAuto, std::span(rooms).first(1)).times.seconds();
    const double together = PlanLanes(jobs, two, PlaceMode::kAuto, rooms).times.seconds();
    EXPECT_LE(together, 7.0 / 6.0 * alone) << "round " << round;
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, AutoRows, testing::Values(1U, 4U, 12U, 64U, 512U));

// The best of all 2^n ways is not always found, but within what longest-processing-time-first
// promises on two equal machines (Graham 1969: 7/6).
TEST(AutoPlaces, AreNearTheBestOfAllWays) {
  std::mt19937 random(3);
  for (int round = 0; round < 60; ++round) {
    const LatencyModel model = round % 2 == 0 ? kSlowLink : kFastLink;
    std::vector<LaneJob> jobs(8);
    for (LaneJob& job : jobs) {
      job.bytes = kMillion * (1 + random() % 6);
      job.rows = 1 + static_cast<uint32_t>(random() % 16);
      job.in_memory = random() % 2 == 0;
      if (random() % 4 == 0) job.on_device = 0;
    }
    double best = 1.0;
    for (unsigned bits = 0; bits < 256; ++bits) {
      std::vector<Site> sites(8);
      for (size_t i = 0; i < 8; ++i) {
        if ((bits >> i & 1U) == 0) continue;
        sites[i].place = jobs[i].on_device ? Place::kDevice : Place::kCopied;
      }
      best = std::min(best, PriceLanes(jobs, sites, model).seconds());
    }
    const double found = PlanLanes(jobs, model, PlaceMode::kAuto, Rooms{{8}}).times.seconds();
    EXPECT_LE(found, 7.0 / 6.0 * best) << "round " << round;
  }
}

// The same with two devices of unequal speed, of all 3^n ways: 4/3 - 1/9 on three equal machines.
TEST(TwoDevices, AreNearTheBestOfAllWays) {
  std::mt19937 random(4);
  const LatencyModel model = Both(kFastLink, kSlowLink);
  for (int round = 0; round < 30; ++round) {
    std::vector<LaneJob> jobs(7);
    for (LaneJob& job : jobs) {
      job.bytes = kMillion * (1 + random() % 6);
      job.rows = 1 + static_cast<uint32_t>(random() % 16);
      job.in_memory = random() % 2 == 0;
      if (random() % 3 == 0) job.on_device = static_cast<uint32_t>(random() % 2);
    }
    double best = 1.0;
    for (unsigned way = 0; way < 2187; ++way) {
      std::vector<Site> sites(7);
      unsigned left = way;
      for (size_t i = 0; i < 7; ++i, left /= 3) {
        if (left % 3 == 0) continue;
        sites[i] = {.place = Place::kCopied, .device = left % 3 - 1};
        if (jobs[i].on_device) sites[i] = {.place = Place::kDevice, .device = *jobs[i].on_device};
      }
      best = std::min(best, PriceLanes(jobs, sites, model).seconds());
    }
    const LanePlan found = PlanLanes(jobs, model, PlaceMode::kAuto, Rooms{{8}, {8}});
    EXPECT_LE(found.times.seconds(), 11.0 / 9.0 * best) << "round " << round;
  }
}

// A launch of 30 us and eight experts of 9.5 us each on the device, or of 155 us on the CPU:
// without a border it pays to give one away, and with one the layer stays whole.
TEST(PlanLanes, ALayerThatIsThereStaysWholeIfItsBorderCostsMoreThanSharingGains) {
  LatencyModel model = kStrongCpu;
  const Rooms room = {{0}};
  const std::vector<LaneJob> jobs = Jobs(1, 8);
  EXPECT_TRUE(Letters(PlanLanes(jobs, model, PlaceMode::kAuto, room).sites).contains('h'));
  model.border = model.devices.front().launch;
  EXPECT_EQ(Letters(PlanLanes(jobs, model, PlaceMode::kAuto, room).sites), "DDDDDDDD");
  // A layer that is not there whole has its border anyway, and is shared as without.
  const std::vector<LaneJob> some = Jobs(1, 4);
  LatencyModel without = model;
  without.border = 0.0;
  EXPECT_EQ(PlanLanes(some, model, PlaceMode::kAuto, room).sites,
            PlanLanes(some, without, PlaceMode::kAuto, room).sites);
}

// Beside a device the CPU's lane begins with the calls of the launch; alone it has none.
TEST(PriceLanes, CallsAreTheCpusWhereCpuAndDeviceShareALayer) {
  const LatencyModel model{.host = {.base = 1e-3},
                           .host_begin = 5e-4,
                           .devices = {{.compute = {.base = 1e-4}, .launch = 1e-4, .calls = 2e-4}}};
  const std::vector<LaneJob> jobs = {{.bytes = 1, .on_device = 0}, {.bytes = 1}};
  const LaneTimes shared =
      PriceLanes(jobs, std::vector{Site{.place = Place::kDevice}, Site{}}, model);
  EXPECT_DOUBLE_EQ(shared.host, 1.7e-3);
  EXPECT_DOUBLE_EQ(shared.calls, 2e-4);
  const LaneTimes alone = PriceLanes(jobs, std::vector<Site>(2), model);
  EXPECT_DOUBLE_EQ(alone.host, 2.5e-3);
  EXPECT_DOUBLE_EQ(alone.calls, 0.0);
}

// A prompt of a hundred rows for each of eight experts, all on the device with the dense part. The
// CPU would save 2 ms of 8, but rows would cross.
TEST(PlanLanes, APromptStaysWhereItsRowsAreIfTheyWouldTakeLongToCross) {
  LatencyModel model{
      .host = {.per_row = 30e-12}, .border = 1e-6, .devices = {{.compute = {.per_row = 10e-12}}}};
  const std::vector<LaneJob> jobs(8, {.bytes = 1'000'000, .rows = 101, .on_device = 0});
  const Rooms room = {{0}};
  EXPECT_TRUE(Letters(PlanLanes(jobs, model, PlaceMode::kAuto, room).sites).contains('h'));
  model.devices.front().pair = 8e-6;
  model.border_pair = 8e-6;
  const LanePlan stays = PlanLanes(jobs, model, PlaceMode::kAuto, room);
  EXPECT_EQ(Letters(stays.sites), "DDDDDDDD");
  EXPECT_NEAR(stays.times.seconds(), 8e-3, 1e-9);
}

}  // namespace
}  // namespace moestro
