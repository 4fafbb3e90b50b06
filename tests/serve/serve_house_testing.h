// SPDX-License-Identifier: MIT
// `moestro serve --models` with three models of the demo model's vocabulary: itself, one with
// states, and one of the hosted engine.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/number.h"
#include "tests/serve/serve_testing.h"
#include "tests/support/llama_zoo_testing.h"
#include "tests/support/tiny_model_testing.h"

namespace moestro::testing {

class HouseTest : public ServeTest {
 protected:
  inline static const std::array<std::string, 3> kNames = {"demo", "hybrid", "hosted"};

  void SetUp() override {
    // For sockets, which a server that is killed leaves behind.
    setenv("XDG_RUNTIME_DIR", folder_.path().c_str(), 1);
    std::filesystem::create_directory(Models());
    std::filesystem::copy_file(kDemo, FileOf("demo"));
    const std::string hybrid =
        WriteTinyModel(folder_.path(), {.arch = "qwen3next", .vocab_path = kDemo});
    std::filesystem::rename(hybrid, FileOf("hybrid"));
    const std::string hosted =
        WriteZooModel(folder_.path(), "dots1", {.context = 512, .vocab_path = kDemo});
    std::filesystem::rename(hosted, FileOf("hosted"));
  }
  std::string Models() const { return folder_.File("models"); }
  std::string FileOf(const std::string& name) const { return Models() + "/" + name + ".gguf"; }

  std::string AskFor(const std::string& model) const {
    return Ask(port_, Post("/v1/completions",
                           R"({"model":")" + model +
                               R"(","prompt":"Once upon a time","max_tokens":8,"temperature":0,)"
                               R"("ignore_eos":true})"));
  }
  // Asks again while there is no room.
  std::string AskUntilRoom(const std::string& model) const {
    std::string reply;
    for (int i = 0; i < 600; ++i) {
      reply = AskFor(model);
      if (!reply.starts_with("HTTP/1.1 503")) return reply;
      EXPECT_TRUE(reply.contains("Retry-After")) << reply;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return reply;
  }
  // The text of a completion; empty: the reply is none.
  static std::string TextOf(const std::string& reply) {
    const size_t body = reply.find("\r\n\r\n");
    if (!reply.starts_with("HTTP/1.1 200") || body == std::string::npos) return "";
    const auto json = Json::Parse(reply.substr(body + 4));
    const auto choice = json ? json->Find("choices") : std::nullopt;
    const auto text = choice && choice->At(0) ? choice->At(0)->Find("text") : std::nullopt;
    return text ? text->Dump() : "";
  }
  double Figure(const std::string& name) const {
    const std::string text = Ask(port_, Get("/metrics"));
    const std::string key = "\nmoestro_" + name + " ";
    const size_t at = text.find(key);
    if (at == std::string::npos) return -1.0;
    const size_t begin = at + key.size();
    return ParseNumber<double>(text.substr(begin, text.find('\n', begin) - begin)).value_or(-2.0);
  }
  // Bytes of --ram for the house and the two largest models at their smallest.
  uint64_t RoomForTwo() {
    std::vector<uint64_t> sizes;
    for (const std::string& name : kNames) {
      const Finished said =
          RunToEnd({FileOf(name), "--ctx", "256", "--threads", "1", "--show-needs"});
      const auto json = Json::Parse(said.out);
      EXPECT_TRUE(json) << said.out << said.err;
      sizes.push_back(json ? static_cast<uint64_t>(NumberAt(*json, "smallest")) : 0);
    }
    std::ranges::sort(sizes, std::greater());
    constexpr uint64_t kHouse = 320 * kMiB;
    return kHouse + sizes[0] + sizes[1] + 8 * kMiB;
  }

  struct Process {
    pid_t id = 0;
    pid_t parent = 0;
    std::string arguments = {};
  };
  static std::vector<Process> ProcessesBelow(pid_t ancestor) {
    std::vector<Process> all;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const auto id = ParseNumber<pid_t>(entry.path().filename().string());
      if (!id) continue;
      std::ifstream status(entry.path() / "status");
      Process process{.id = *id};
      for (std::string key; status >> key;) {
        if (key == "PPid:") status >> process.parent;
      }
      std::ifstream line(entry.path() / "cmdline", std::ios::binary);
      process.arguments.assign(std::istreambuf_iterator<char>(line), {});
      all.push_back(std::move(process));
    }
    std::vector<pid_t> family = {ancestor};
    std::vector<Process> below;
    for (size_t i = 0; i < family.size(); ++i) {
      for (const Process& process : all) {
        if (process.parent != family[i]) continue;
        family.push_back(process.id);
        below.push_back(process);
      }
    }
    return below;
  }
  // Resident bytes of a process and all below it, each shared page once.
  static uint64_t ResidentOf(pid_t id) {
    std::vector<pid_t> ids = {id};
    for (const Process& process : ProcessesBelow(id)) ids.push_back(process.id);
    uint64_t sum = 0;
    for (const pid_t each : ids) {
      std::ifstream rollup("/proc/" + std::to_string(each) + "/smaps_rollup");
      for (std::string key; rollup >> key;) {
        uint64_t kib = 0;
        if (key == "Pss:" && rollup >> kib) sum += kib;
      }
    }
    return sum * kKiB;
  }
  static bool IsAlive(pid_t id) {
    std::ifstream status("/proc/" + std::to_string(id) + "/status");
    for (std::string key, value; status >> key;) {
      if (key == "State:" && status >> value) return value != "Z";
    }
    return false;
  }
  // Waits until all models have been looked at.
  std::string AwaitList(size_t models) const {
    std::string list;
    for (int i = 0; i < 100; ++i) {
      list = Ask(port_, Get("/v1/models"));
      size_t known = 0;
      for (const std::string_view part : {"\"needs\":", "\"error\":"}) {
        for (size_t at = list.find(part); at != list.npos; at = list.find(part, at + 1)) ++known;
      }
      if (known == models) break;
    }
    return list;
  }
  pid_t ProcessOf(const std::string& model) const {
    for (const Process& process : ProcessesBelow(program_->id())) {
      const bool is_models = process.parent == program_->id() &&
                             process.arguments.contains("--alias=" + model + '\0') &&
                             process.arguments.contains("--host=unix:");
      if (is_models) return process.id;
    }
    return -1;
  }
};

}  // namespace moestro::testing
