// SPDX-License-Identifier: MIT
// A client's connection as bytes: reads requests one after another, writes replies, tells whether
// the client is still there. How long it may wait for the client is the business of Connections.
//
// Thread rule: the connection's thread.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "serve/connections.h"
#include "serve/http_head.h"

namespace moestro {

// To one whose head did not arrive as far as a reply needs it.
inline constexpr std::string_view kTooSlow =
    "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
// What clients pass over: before a reply, and between the events of one.
inline constexpr std::string_view kIgnored = "HTTP/1.1 100 Continue\r\n\r\n";
inline constexpr std::string_view kIgnoredEvent = "3\r\n:\n\n\r\n";

class ClientSocket {
 public:
  // Closes the socket in the end. `connections` must outlive this.
  ClientSocket(int socket, Connections& connections);
  ~ClientSocket();
  ClientSocket(const ClientSocket&) = delete;
  ClientSocket& operator=(const ClientSocket&) = delete;

  // Waits for the next request's first byte, which may be here already. False: there is none.
  bool NextRequest();
  // As read(2), but that a head's lines which httplib does not take are left out.
  ssize_t Read(char* to, size_t size);
  // As write(2), of at least one byte; waits until the client has read enough.
  ssize_t Write(std::string_view bytes);
  // Looks whether the client has left. One that has only ended its own side waits for its reply; it
  // is told from one that has closed by what the network answers to `ignored`, bytes that a client
  // passes over at this place. Empty: there are none, and both have left.
  bool IsGone();
  void set_ignored(std::string_view ignored) { ignored_ = ignored; }

  Connections::Id id() const { return id_; }
  int socket() const { return socket_; }
  bool has_unread() const { return taken_ < pending_.size(); }
  const HttpHead& head() const { return head_; }
  // The reply has begun.
  bool is_answered() const { return is_answered_; }

 private:
  ssize_t Receive(char* to, size_t size, int flags) const;
  bool FillPending();
  void Discard();

  const int socket_;
  Connections& connections_;
  const Connections::Id id_;
  HttpHead head_;
  bool is_answered_ = false;
  bool has_asked_ = false;  // whether the client has left
  std::string_view ignored_;
  std::string pending_;  // read and not yet asked for from `taken_` on
  size_t taken_ = 0;
};

}  // namespace moestro
