// SPDX-License-Identifier: MIT
// A hub on this machine for tests: speaks the hub's paths at 127.0.0.1 and sends large files from
// another host, localhost, as the hub does from its content servers. A test may change any reply.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "hub/hub_settings.h"
#include "hub/web_request.h"

namespace moestro {

class HubServer {
 public:
  struct Asked {
    std::string method;
    std::string target;                               // path and query
    std::map<std::string, std::string> headers = {};  // names in lower case

    std::string Header(const std::string& name) const {
      const auto found = headers.find(name);
      return found != headers.end() ? found->second : std::string();
    }
    bool is_for_content() const { return target.starts_with("/content/"); }
    std::string range() const { return Header("range"); }
    size_t range_bytes() const;  // that the range asks for
  };
  struct Answer {
    int status = 200;
    std::map<std::string, std::string> headers = {};
    std::string body = {};
    size_t cut_after = SIZE_MAX;   // bytes of the body, after which the connection breaks
    bool is_of_no_length = false;  // no Content-Length: the body ends with the connection
    bool stays_silent = false;     // nothing is sent at all
  };
  // Called for each reply, by one thread at a time. `n`: how many requests came before, of the same
  // kind (for contents or for the hub).
  using Change = std::function<void(const Asked& asked, Answer& answer, size_t n)>;

  HubServer();
  ~HubServer();
  HubServer(const HubServer&) = delete;
  HubServer& operator=(const HubServer&) = delete;

  // A file of a repository at a commit, which its branch main names from now on. A small one is
  // sent by the hub itself and has git's name alone.
  void Add(const std::string& repo, const std::string& commit, const std::string& path,
           const std::string& content, bool is_large = true);
  void OnReply(Change change);
  void RequireToken(const std::string& token);  // of every repository
  void ListFilesPerPage(size_t files);
  // The contents' server names its copies so from now on, before their hash.
  void NameCopies(const std::string& name);

  std::string endpoint() const;  // http://127.0.0.1:PORT
  std::string contents() const;  // http://localhost:PORT
  HubSettings Settings(const std::string& cache) const;
  std::vector<Asked> asked() const;
  std::vector<Asked> AskedForContent() const;
  void Forget();  // what was asked

 private:
  struct File {
    std::string path;
    std::string content;
    bool is_large;
    std::string etag;  // sha256, or git's name
  };
  void Accept();
  void Serve(int fd);
  Answer AnswerTo(const Asked& asked) const;
  Answer Search(const std::string& query) const;
  Answer Api(const std::string& repo, const std::string& rest) const;
  Answer Resolve(const std::string& repo, const std::string& rest) const;
  Answer Part(const Asked& asked, const std::string& content, const std::string& etag) const;

  int listener_ = -1;
  uint16_t port_ = 0;
  mutable std::mutex mutex_;
  std::map<std::string, std::map<std::string, std::vector<File>>> repos_;  // repo, commit
  std::map<std::string, std::string> heads_;                               // repo: commit of main
  std::string token_;
  size_t page_ = SIZE_MAX;
  std::string copies_ = "content-";
  Change change_;
  std::vector<Asked> asked_;
  std::vector<int> open_;
  std::condition_variable closed_;  // a connection has been closed
  bool is_ending_ = false;
  std::vector<std::thread> threads_;
  std::thread acceptor_;
};

// Waits of milliseconds, as many tries as ever.
inline RetryPolicy QuickRetries() {
  return {.most_tries = 4, .first_wait = 0.002, .longest_wait = 0.01, .longest_asked = 2.0};
}

// `size` bytes that differ from place to place.
std::string SomeBytes(size_t size, uint32_t seed = 1);

}  // namespace moestro
