// SPDX-License-Identifier: MIT
// A client's connection as bytes: reads requests one after another, writes replies, detects that
// the client has left. Connections limits the time for which a client is waited for.
//
// httplib's own stream does not do. Each of these tests of HttpServerTest fails with it:
// - Bytes that were read behind a request begin the next request, where httplib drops them:
//   RequestsThatAreSentAheadAreAllAnswered.
// - A client that has only ended its own side gets the reply, where httplib takes it for gone:
//   AClientThatHalfClosesGetsItsReply.
// - The body of a refused request is not waited for, where httplib reads all of it before it goes
//   on: BodiesThatTakeTooMuchTogetherAreRefused.
// - A client that still sends is listened to for a moment, where httplib closes and the network may
//   drop the reply: ARefusedBodyIsTakenToItsEnd.
//
// Thread rule: the connection's thread.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "serve/connections.h"
#include "serve/http_head.h"

namespace moestro {

// The reply to a client whose request line came too late.
inline constexpr std::string_view kTooSlow =
    "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
// Bytes that clients pass over: before a reply, and between the events of a reply.
inline constexpr std::string_view kIgnored = "HTTP/1.1 100 Continue\r\n\r\n";
inline constexpr std::string_view kIgnoredEvent = "3\r\n:\n\n\r\n";

class ClientSocket {
 public:
  // Closes the socket in the end. `connections` must outlive this.
  ClientSocket(int socket, Connections& connections);
  ~ClientSocket();
  ClientSocket(const ClientSocket&) = delete;
  ClientSocket& operator=(const ClientSocket&) = delete;

  // Waits for the first byte of the next request. False: no request comes.
  bool NextRequest();
  // Like read(2), without the lines of a head that HttpHead puts aside. -1 also for bytes that are
  // no chunks where chunks are expected.
  ssize_t Read(char* to, size_t size);
  // From now on Read() gives the request's body, which comes in chunks.
  void ExpectChunks() { chunks_.emplace(); }
  // Like write(2), for at least one byte. Waits until the kernel takes a byte.
  ssize_t Write(std::string_view bytes);
  // Whether the client has left. A client that has only ended its own side still waits for the
  // reply. The network shows the difference by its answer to `ignored`: bytes that a client skips
  // at this point. `ignored` empty: a client that has ended its side counts as gone.
  bool IsGone();
  void set_ignored(std::string_view ignored) { ignored_ = ignored; }

  Connections::Id id() const { return id_; }
  int socket() const { return socket_; }
  bool has_unread() const { return taken_ < pending_.size(); }
  const HttpHead& head() const { return head_; }
  // The reply has begun.
  bool is_answered() const { return is_answered_; }

 private:
  ssize_t ReadAny(char* to, size_t size);
  ssize_t Receive(char* to, size_t size, int flags) const;
  bool FillPending();
  void Discard();

  const int socket_;
  Connections& connections_;
  const Connections::Id id_;
  HttpHead head_;
  std::optional<ChunkFrames> chunks_;
  bool is_answered_ = false;
  bool has_asked_ = false;  // `ignored_` has been sent
  std::string_view ignored_;
  std::string pending_;  // bytes read; the ones before `taken_` have been given out
  size_t taken_ = 0;
};

}  // namespace moestro
