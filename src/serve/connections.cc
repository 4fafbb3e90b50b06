// SPDX-License-Identifier: MIT
#include "serve/connections.h"

#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <string_view>
#include <thread>

#include "base/caught.h"

namespace moestro {
namespace {

// Time at the end for replies that are under way, and waiting time for threads that are about to
// end.
constexpr std::chrono::seconds kGrace{1};

}  // namespace

// The thread that takes connections goes on without the one for which memory is short.
bool Connections::Begin(std::function<void()> work) {
  return Caught([&] { return BeginThread(std::move(work)); },
                [](std::string_view) { return false; });
}

bool Connections::BeginThread(std::function<void()> work) {
  std::unique_lock lock(mutex_);
  std::optional<ConnectionLedger::Arrival> arrival;
  // Waits for a place: while all places for requests are taken, connections beyond them (refusals,
  // kept paths) end soon.
  const bool has_place = ended_.wait_for(lock, kGrace, [&] {
    arrival = ledger_.Arrive(clock_());
    return arrival.has_value();
  });
  if (!has_place) return false;
  if (arrival->leaves) End(*arrival->leaves);
  ended_.wait_for(lock, kGrace, [this] { return threads_ < most_threads_; });
  try {
    std::thread([this, id = arrival->id, work = std::move(work)] {
      // A connection that cannot get memory ends; the others go on.
      Caught(
          [&] {
            Started(id);
            work();
          },
          [](std::string_view) {});
      const std::lock_guard end(mutex_);
      ids_.erase(std::this_thread::get_id());
      --threads_;
      ended_.notify_all();
    }).detach();
  } catch (const std::exception&) {  // no thread, or no memory for one
    ledger_.Gone(arrival->id);
    return false;
  }
  ++threads_;
  return true;
}

void Connections::Started(Id id) {
  const std::lock_guard lock(mutex_);
  ids_[std::this_thread::get_id()] = id;
}

void Connections::Finish() {
  std::unique_lock lock(mutex_);
  is_finishing_ = true;
  for (const Id id : ledger_.waited_for()) ShutDown(id, SHUT_RDWR);
  const auto is_over = [this] { return threads_ == 0; };
  if (ended_.wait_for(lock, kGrace, is_over)) return;
  for (const auto& [id, socket] : sockets_) ShutDown(id, SHUT_RDWR);
  ended_.wait(lock, is_over);
}

Connections::Id Connections::Open(int socket) {
  const std::lock_guard lock(mutex_);
  const Id id = ids_.at(std::this_thread::get_id());
  sockets_[id] = socket;
  if (is_finishing_ || ledger_.must_go(id)) End(id);
  return id;
}

void Connections::Close(Id id) {
  const std::lock_guard lock(mutex_);  // the number may be another connection's at once
  const int socket = sockets_.at(id);
  ::shutdown(socket, SHUT_RDWR);
  ::close(socket);
  sockets_.erase(id);
  ledger_.Gone(id);
}

bool Connections::HeadEnds(Id id, bool is_kept) {
  const std::lock_guard lock(mutex_);
  const ConnectionLedger::Verdict verdict = ledger_.HeadEnds(id, is_kept, clock_());
  if (verdict.leaves) End(*verdict.leaves);
  return verdict.passes;
}

// Ends late connections. If memory is too short for the list, the next call ends them.
void Connections::EndLate() {
  const std::lock_guard lock(mutex_);
  Caught(
      [this] {
        for (const Id id : ledger_.TakeLate(clock_())) End(id);
      },
      [](std::string_view) {});
}

bool Connections::Rests(Id id) {
  const std::lock_guard lock(mutex_);
  ledger_.Rests(id, clock_());
  return !is_finishing_;
}

// Shuts down only reading if the client is still sending: its thread then sends the refusal and
// closes the socket.
void Connections::End(Id id) const { ShutDown(id, ledger_.is_sending(id) ? SHUT_RD : SHUT_RDWR); }

void Connections::ShutDown(Id id, int how) const {
  const auto at = sockets_.find(id);
  if (at != sockets_.end()) ::shutdown(at->second, how);
}

}  // namespace moestro
