// SPDX-License-Identifier: MIT
#include "tests/support/hub_server_testing.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <random>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "base/result.h"
#include "base/text.h"
#include "hub/content_hash.h"
#include "tests/support/content_name_testing.h"

namespace moestro {
namespace {

bool SendAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

// The next request's head on a connection; nullopt: it is over.
std::optional<HubServer::Asked> ReadRequest(int fd, std::string& unread) {
  size_t end = 0;
  while ((end = unread.find("\r\n\r\n")) == std::string::npos) {
    std::array<char, 4096> buffer{};
    const ssize_t n = recv(fd, buffer.data(), buffer.size(), 0);
    if (n <= 0) return std::nullopt;
    unread.append(buffer.data(), static_cast<size_t>(n));
  }
  const std::string head = unread.substr(0, end + 2);
  unread.erase(0, end + 4);
  HubServer::Asked asked;
  const size_t blank = head.find(' ');
  asked.method = head.substr(0, blank);
  asked.target = head.substr(blank + 1, head.find(' ', blank + 1) - blank - 1);
  for (size_t at = head.find("\r\n") + 2; at < head.size(); at = head.find("\r\n", at) + 2) {
    const std::string line = head.substr(at, head.find("\r\n", at) - at);
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    std::string name = line.substr(0, colon);
    std::ranges::transform(name, name.begin(),
                           [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    asked.headers[name] = line.substr(line.find_first_not_of(' ', colon + 1));
  }
  return asked;
}

bool SendAnswer(int fd, const HubServer::Asked& asked, const HubServer::Answer& answer) {
  if (answer.stays_silent) return true;
  std::string head = Format("HTTP/1.1 {} Said\r\n", answer.status);
  for (const auto& [name, value] : answer.headers) head += Format("{}: {}\r\n", name, value);
  if (answer.is_of_no_length)
    head += "Connection: close\r\n";
  else if (!answer.headers.contains("Content-Length"))
    head += Format("Content-Length: {}\r\n", answer.body.size());
  if (!SendAll(fd, head + "\r\n")) return false;
  if (asked.method == "HEAD") return !answer.is_of_no_length;
  const std::string_view body = answer.body;
  if (!SendAll(fd, body.substr(0, std::min(body.size(), answer.cut_after)))) return false;
  return answer.cut_after >= body.size() && !answer.is_of_no_length;
}

HubServer::Answer NoSuch(const std::string& code) {
  return {.status = 404, .headers = {{"X-Error-Code", code}}, .body = R"({"error":"not found"})"};
}

}  // namespace

size_t HubServer::Asked::range_bytes() const {
  const std::string text = range();
  const size_t equals = text.find('=');
  const size_t dash = text.find('-');
  if (equals == std::string::npos || dash == std::string::npos) return 0;
  return std::stoul(text.substr(dash + 1)) + 1 - std::stoul(text.substr(equals + 1));
}

HubServer::HubServer() : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  // Requests go to this machine and not to a proxy that its environment names.
  setenv("no_proxy", "*", 1);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  CHECK(bind(listener_, reinterpret_cast<sockaddr*>(&address), size) == 0);
  CHECK(listen(listener_, 64) == 0);
  CHECK(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this] { Accept(); });
}

HubServer::~HubServer() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
    for (const int fd : open_) shutdown(fd, SHUT_RDWR);
  }
  shutdown(listener_, SHUT_RDWR);
  acceptor_.join();
  for (std::thread& thread : threads_) thread.join();
  close(listener_);
}

void HubServer::Accept() {
  while (true) {
    const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) return;
    const std::lock_guard lock(mutex_);
    if (is_ending_) {
      close(fd);
      return;
    }
    open_.push_back(fd);
    threads_.emplace_back([this, fd] { Serve(fd); });
  }
}

void HubServer::Serve(int fd) {
  std::string unread;
  while (const auto asked = ReadRequest(fd, unread)) {
    Answer answer;
    {
      const std::lock_guard lock(mutex_);
      const auto n = std::ranges::count(asked_, asked->is_for_content(), &Asked::is_for_content);
      asked_.push_back(*asked);
      answer = AnswerTo(*asked);
      if (change_) change_(*asked, answer, static_cast<size_t>(n));
    }
    if (!SendAnswer(fd, *asked, answer)) break;
  }
  const std::lock_guard lock(mutex_);
  std::erase(open_, fd);
  close(fd);
  closed_.notify_all();
}

void HubServer::Add(const std::string& repo, const std::string& commit, const std::string& path,
                    const std::string& content, bool is_large) {
  ContentHash git(HashKind::kGitBlob, content.size());
  git.Add(std::as_bytes(std::span(content)));
  const std::lock_guard lock(mutex_);
  heads_[repo] = commit;
  repos_[repo][commit].push_back({.path = path,
                                  .content = content,
                                  .is_large = is_large,
                                  .etag = is_large ? Sha256Of(content) : git.Finish()});
}

void HubServer::OnReply(Change change) {
  const std::lock_guard lock(mutex_);
  change_ = std::move(change);
}

void HubServer::RequireToken(const std::string& token) {
  const std::lock_guard lock(mutex_);
  token_ = token;
}

void HubServer::ListFilesPerPage(size_t files) {
  const std::lock_guard lock(mutex_);
  page_ = files;
}

void HubServer::NameCopies(const std::string& name) {
  const std::lock_guard lock(mutex_);
  copies_ = name;
}

std::string HubServer::endpoint() const { return Format("http://127.0.0.1:{}", port_); }
std::string HubServer::contents() const { return Format("http://localhost:{}", port_); }

HubSettings HubServer::Settings(const std::string& cache) const {
  return {.endpoint = endpoint(), .token = {}, .cache = cache, .is_offline = false};
}

std::vector<HubServer::Asked> HubServer::asked() const {
  const std::lock_guard lock(mutex_);
  return asked_;
}

std::vector<HubServer::Asked> HubServer::AskedForContent() const {
  std::vector<Asked> found = asked();
  std::erase_if(found, [](const Asked& one) { return !one.is_for_content(); });
  return found;
}

void HubServer::Forget() {
  // A request of a client that has gone may still be on its way through a thread.
  std::unique_lock lock(mutex_);
  closed_.wait_for(lock, std::chrono::seconds(2), [this] { return open_.empty(); });
  asked_.clear();
}

HubServer::Answer HubServer::AnswerTo(const Asked& asked) const {
  const std::string& target = asked.target;
  const auto part = [&](size_t begin, std::string_view end) {
    return target.substr(begin, target.find(end, begin) - begin);
  };
  if (asked.is_for_content()) {
    const std::string sha = part(std::string_view("/content/").size(), "?");
    for (const auto& [repo, commits] : repos_) {
      for (const auto& [commit, files] : commits) {
        for (const File& file : files) {
          if (file.etag == sha) return Part(asked, file.content, "\"" + copies_ + sha + "\"");
        }
      }
    }
    return NoSuch("EntryNotFound");
  }
  if (!token_.empty() && asked.Header("authorization") != "Bearer " + token_) {
    return {.status = 401, .headers = {{"X-Error-Code", "GatedRepo"}}, .body = "{}"};
  }
  constexpr std::string_view kSearch = "/api/models?";
  if (target.starts_with(kSearch)) return Search(target.substr(kSearch.size()));
  constexpr std::string_view kApi = "/api/models/";
  const bool is_api = target.starts_with(kApi);
  const size_t owner = is_api ? kApi.size() : 1;
  const size_t slash = target.find('/', owner);
  if (slash == std::string::npos) return NoSuch("RepoNotFound");
  const size_t end = std::min(target.find('/', slash + 1), target.size());
  const std::string repo = target.substr(owner, end - owner);
  if (!repos_.contains(repo) || end == target.size()) return NoSuch("RepoNotFound");
  const std::string rest = target.substr(end + 1);
  Answer answer = is_api ? Api(repo, rest) : Resolve(repo, rest);
  if (answer.status == 200 && !is_api) {
    Answer small = Part(asked, answer.body, answer.headers["ETag"]);
    small.headers.merge(answer.headers);
    return small;
  }
  return answer;
}

HubServer::Answer HubServer::Search(const std::string& query) const {
  const bool by_owner = query.contains("author=");
  const std::string word = query.substr(query.rfind('=') + 1);
  Json names = Json::Array();
  for (const auto& [repo, commits] : repos_) {
    const size_t slash = repo.find('/');
    const bool matches = by_owner ? repo.substr(0, slash) == word : repo.substr(slash + 1) == word;
    if (!matches) continue;
    Json entry = Json::Object();
    entry.Set("id", repo);
    names.Push(std::move(entry));
  }
  return {.body = names.Dump()};
}

HubServer::Answer HubServer::Api(const std::string& repo, const std::string& rest) const {
  const auto& commits = repos_.at(repo);
  const auto commit_of = [&](const std::string& revision) {
    return revision == "main" ? heads_.at(repo) : revision;
  };
  const size_t slash = rest.find('/');
  const std::string verb = rest.substr(0, slash);
  const std::string revision = rest.substr(slash + 1, rest.find('?') - slash - 1);
  const std::string commit = commit_of(revision);
  if (!commits.contains(commit)) return NoSuch("RevisionNotFound");
  if (verb == "revision") {
    Json about = Json::Object();
    about.Set("id", repo).Set("sha", commit);
    return {.body = about.Dump()};
  }
  const std::vector<File>& files = commits.at(commit);
  const size_t cursor = rest.find("cursor=");
  const size_t begin = cursor == std::string::npos
                           ? 0
                           : std::stoul(rest.substr(cursor + std::string("cursor=").size()));
  const size_t end = begin + std::min(page_, files.size() - begin);
  Json list = Json::Array();
  for (size_t i = begin; i < end; ++i) {
    Json entry = Json::Object();
    entry.Set("type", "file")
        .Set("path", files[i].path)
        .Set("size", files[i].content.size())
        .Set("oid", files[i].is_large ? std::string(40, '0') : files[i].etag);
    if (files[i].is_large) {
      Json lfs = Json::Object();
      lfs.Set("oid", files[i].etag).Set("size", files[i].content.size());
      entry.Set("lfs", std::move(lfs));
    }
    list.Push(std::move(entry));
  }
  Answer answer{.body = list.Dump()};
  if (end < files.size()) {
    answer.headers["Link"] =
        Format("<{}/api/models/{}/tree/{}?recursive=true&cursor={}>; rel=\"next\"", endpoint(),
               repo, commit, end);
  }
  return answer;
}

HubServer::Answer HubServer::Resolve(const std::string& repo, const std::string& rest) const {
  constexpr std::string_view kVerb = "resolve/";
  if (!rest.starts_with(kVerb)) return NoSuch("EntryNotFound");
  const size_t slash = rest.find('/', kVerb.size());
  const std::string revision = rest.substr(kVerb.size(), slash - kVerb.size());
  const std::string commit = revision == "main" ? heads_.at(repo) : revision;
  if (!repos_.at(repo).contains(commit)) return NoSuch("RevisionNotFound");
  for (const File& file : repos_.at(repo).at(commit)) {
    if (file.path != rest.substr(slash + 1)) continue;
    if (!file.is_large) {
      return {.headers = {{"X-Repo-Commit", commit}, {"ETag", "\"" + file.etag + "\""}},
              .body = file.content};
    }
    return {.status = 302,
            .headers = {{"X-Repo-Commit", commit},
                        {"X-Linked-ETag", "\"" + file.etag + "\""},
                        {"X-Linked-Size", std::to_string(file.content.size())},
                        {"Location", Format("{}/content/{}?signed", contents(), file.etag)}}};
  }
  return NoSuch("EntryNotFound");
}

HubServer::Answer HubServer::Part(const Asked& asked, const std::string& content,
                                  const std::string& etag) const {
  Answer answer{.headers = {{"ETag", etag}, {"Accept-Ranges", "bytes"}}};
  const std::string asked_range = asked.range();
  const std::string if_range = asked.Header("if-range");
  if (asked_range.empty() || (!if_range.empty() && if_range != etag)) {
    answer.body = content;
    return answer;
  }
  const size_t equals = asked_range.find('=');
  const size_t dash = asked_range.find('-');
  const size_t begin = std::stoul(asked_range.substr(equals + 1, dash - equals - 1));
  const size_t last = std::stoul(asked_range.substr(dash + 1));
  if (begin >= content.size()) {
    answer.status = 416;
    answer.headers["Content-Range"] = Format("bytes */{}", content.size());
    return answer;
  }
  answer.status = 206;
  answer.body = content.substr(begin, last + 1 - begin);
  answer.headers["Content-Range"] =
      Format("bytes {}-{}/{}", begin, begin + answer.body.size() - 1, content.size());
  return answer;
}

std::string SomeBytes(size_t size, uint32_t seed) {
  std::minstd_rand random(seed);
  std::string bytes(size, '\0');
  std::ranges::generate(bytes, [&] { return static_cast<char>(random() >> 8); });
  return bytes;
}

}  // namespace moestro
