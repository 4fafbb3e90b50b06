// SPDX-License-Identifier: MIT
// moestro_delay_relay PORT HOST:PORT MICROSECONDS: passes on what comes to a port of every address
// of this machine, each byte so much later, in both directions: a longer cable, where the kernel
// has no netem. bench/remote.sh measures what the relay itself costs.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

int Connect(const std::string& target) {
  const size_t colon = target.rfind(':');
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port =
      htons(static_cast<uint16_t>(std::strtoul(target.c_str() + colon + 1, nullptr, 10)));
  inet_pton(AF_INET, target.substr(0, colon).c_str(), &address.sin_addr);
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) return fd;
  close(fd);
  return -1;
}

// One direction: a thread receives, this one sends what is old enough.
class Direction {
 public:
  Direction(int from, int to, std::chrono::microseconds delay)
      : from_(from), to_(to), delay_(delay), receiver_([this] { Receive(); }) {}

  void Send() {
    prctl(PR_SET_TIMERSLACK, 1);
    for (;;) {
      std::unique_lock lock(mutex_);
      arrived_.wait(lock, [this] { return !pieces_.empty() || has_ended_; });
      if (pieces_.empty()) break;
      Piece piece = std::move(pieces_.front());
      pieces_.pop_front();
      queued_ -= piece.bytes.size();
      lock.unlock();
      room_.notify_one();
      std::this_thread::sleep_until(piece.due);
      for (size_t sent = 0; sent < piece.bytes.size();) {
        const ssize_t n =
            send(to_, piece.bytes.data() + sent, piece.bytes.size() - sent, MSG_NOSIGNAL);
        if (n <= 0) break;
        sent += static_cast<size_t>(n);
      }
    }
    shutdown(to_, SHUT_WR);
    receiver_.join();
  }

 private:
  struct Piece {
    Clock::time_point due;
    std::vector<char> bytes;
  };
  static constexpr size_t kMostQueued = size_t{4} << 20U;

  void Receive() {
    std::vector<char> buffer(size_t{64} << 10U);
    for (;;) {
      const ssize_t n = recv(from_, buffer.data(), buffer.size(), 0);
      std::unique_lock lock(mutex_);
      if (n <= 0) break;
      room_.wait(lock, [this] { return queued_ < kMostQueued; });
      queued_ += static_cast<size_t>(n);
      pieces_.push_back(
          {.due = Clock::now() + delay_, .bytes = {buffer.data(), buffer.data() + n}});
      lock.unlock();
      arrived_.notify_one();
    }
    {
      const std::lock_guard lock(mutex_);
      has_ended_ = true;
    }
    arrived_.notify_one();
  }

  int from_;
  int to_;
  std::chrono::microseconds delay_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::condition_variable room_;
  std::deque<Piece> pieces_;
  size_t queued_ = 0;
  bool has_ended_ = false;
  std::thread receiver_;
};

void Serve(int client, const std::string& target, std::chrono::microseconds delay) {
  const int server = Connect(target);
  const int on = 1;
  for (const int fd : {client, server}) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  if (server >= 0) {
    Direction there(client, server, delay);
    Direction back(server, client, delay);
    std::thread sends([&] { back.Send(); });
    there.Send();
    sends.join();
    close(server);
  }
  close(client);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: %s PORT HOST:PORT MICROSECONDS\n", argv[0]);
    return 1;
  }
  signal(SIGPIPE, SIG_IGN);
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  const int on = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(std::strtoul(argv[1], nullptr, 10)));
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(listener, 8) != 0) {
    std::perror("moestro_delay_relay");
    return 1;
  }
  const std::string target = argv[2];
  const std::chrono::microseconds delay(std::strtoul(argv[3], nullptr, 10));
  for (;;) {
    const int client = accept(listener, nullptr, nullptr);
    if (client < 0) return 1;
    std::thread([=] { Serve(client, target, delay); }).detach();
  }
}
