// SPDX-License-Identifier: MIT
// A pretend disk and processor with a virtual clock. The disk reads one part (a matrix of an
// expert) after another; the processor hands out up to kInFlight parts of what is not urgent, but
// none while it computes the dense part of a layer, as the engine does.
#pragma once

#include <algorithm>
#include <cstdint>

namespace moestro {

class Machine {
 public:
  static constexpr unsigned kInFlight = 4;

  struct Speeds {
    double dense = 0.0;   // seconds of a layer's dense part
    double expert = 0.0;  // of computing one expert
    double part = 0.0;    // of reading one part
  };
  explicit Machine(Speeds speeds) : speeds_(speeds) {}

  double now() const { return now_; }
  double waited() const { return waited_; }
  double parts_read() const { return parts_read_; }  // of full size

  void ComputeDense() { now_ += speeds_.dense; }
  // One expert that is there at the moment `arrives`.
  void ComputeExpert(double arrives) {
    waited_ += std::max(0.0, arrives - now_);
    now_ = std::max(now_, arrives) + speeds_.expert;
  }
  // Reads one part, of `size` times the full size; gives the moment at which it is there.
  double Read(double size = 1.0) { return ReadWaiting(now_, size); }
  double SecondsToRead(double parts) const { return parts * speeds_.part; }
  // True while a part that is not urgent would be handed out.
  bool has_room() const {
    return disk_free_ < now_ + (static_cast<double>(kInFlight) - 0.5) * speeds_.part ||
           speeds_.part == 0.0;
  }
  // Like Read(), for a part that was waiting while the clock went on: the disk took it as soon as
  // it was free, but not before `since`.
  double ReadWaiting(double since, double size = 1.0) {
    parts_read_ += size;
    disk_free_ = std::max(disk_free_, since) + size * speeds_.part;
    return disk_free_;
  }

 private:
  Speeds speeds_;
  double now_ = 0.0;
  double waited_ = 0.0;
  double disk_free_ = 0.0;
  double parts_read_ = 0.0;
};

}  // namespace moestro
