// SPDX-License-Identifier: MIT
#include "serve/readiness.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "serve/http_server.h"
#include "tests/support/notice_socket_testing.h"
#include "tests/support/socket_client_testing.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

TEST(ServiceNotice, ReachesAPathAndANameThatIsNoFile) {
  const TempFolder folder;
  for (const std::string& address : {folder.File("notify"), Format("@moestro/{}", getpid())}) {
    const NoticeSocket manager(address);
    ASSERT_TRUE(manager.is_open()) << address;
    ServiceNotice notice(address);
    notice.Send("READY=1\nSTATUS=here");
    notice.Send("STOPPING=1");
    EXPECT_EQ(manager.Receive(), "READY=1\nSTATUS=here");
    EXPECT_EQ(manager.Receive(), "STOPPING=1");
  }
}

TEST(ServiceNotice, NonsenseIsGivenUp) {
  const TempFolder folder;
  for (const std::string& address :
       {std::string(), std::string("nonsense"), std::string("vsock:2:1234"), std::string("@"),
        folder.File("absent"), folder.path().string(), "/" + std::string(200, 'x'),
        "@" + std::string(107, 'y'), std::string("/dev/null")}) {
    ServiceNotice notice(address);
    notice.Send("READY=1");
    notice.Send("STOPPING=1");
  }
}

TEST(ServiceNotice, AManagerThatDoesNotReadHoldsUpNothingAndIsToldWhatComesLater) {
  const TempFolder folder;
  const NoticeSocket manager(folder.File("notify"));
  manager.Fill();
  ServiceNotice notice(folder.File("notify"));
  notice.Send("STATUS=lost");
  while (!manager.ReceiveNow().empty()) {
  }
  notice.Send("READY=1");
  EXPECT_EQ(manager.ReceiveNow(), "READY=1");
}

TEST(ServiceNotice, ATextThatIsLostDoesNotLoseTheNext) {
  const TempFolder folder;
  const NoticeSocket manager(folder.File("notify"));
  ServiceNotice notice(folder.File("notify"));
  notice.Send("STATUS=" + std::string(10'000'000, 'x'));  // larger than any socket's buffer
  notice.Send("READY=1");
  EXPECT_EQ(manager.Receive(), "READY=1");
}

TEST(ServiceNotice, AnAddressWithoutAnybodyIsForgotten) {
  const TempFolder folder;
  ServiceNotice notice(folder.File("notify"));
  notice.Send("STATUS=early");
  const NoticeSocket manager(folder.File("notify"));
  notice.Send("STATUS=lost");
  ServiceNotice(folder.File("notify")).Send("STATUS=of another");
  EXPECT_EQ(manager.Receive(), "STATUS=of another");
}

std::unique_ptr<HttpServer> Listen(std::atomic<int>& status) {
  auto server = HttpServer::Listen(
      {.port = 0}, {.admit = [](const HttpRequest&) { return std::optional<HttpReply>(); },
                    .answer =
                        [&](HttpRequest& request) {
                          HttpReply reply{.status = status};
                          if (request.path != "/health") reply.status = 404;
                          return reply;
                        },
                    .refuse = [](const RequestRecord&, int, std::string_view) { return ""; }});
  EXPECT_TRUE(server);
  return *std::move(server);
}

TEST(HealthCheck, TellsReadyFromNotReadyAndFromNobody) {
  std::atomic<int> status = 503;
  const auto server = Listen(status);
  const Status loads = CheckHealth("127.0.0.1", server->port(), 10.0);
  ASSERT_FALSE(loads);
  EXPECT_TRUE(loads.error().message.contains("not ready")) << loads.error().message;
  status = 200;
  for (const char* host : {"127.0.0.1", "0.0.0.0", "localhost"}) {
    EXPECT_TRUE(CheckHealth(host, server->port(), 10.0)) << host;
  }
  const Status nobody = CheckHealth("127.0.0.1", SocketClient::FreePort(), 10.0);
  ASSERT_FALSE(nobody);
  EXPECT_TRUE(nobody.error().message.contains("no server answers")) << nobody.error().message;
  EXPECT_FALSE(CheckHealth("no host\x01", 80, 10.0));
}

TEST(HealthCheck, AServerThatTakesAndSaysNothingIsGivenUp) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof(address);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), bytes), 0);
  ASSERT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  const Status silent = CheckHealth("127.0.0.1", ntohs(address.sin_port), 0.05);
  close(fd);
  ASSERT_FALSE(silent);
  EXPECT_TRUE(silent.error().message.contains("timed out")) << silent.error().message;
}

HttpHandlers Healthy() {
  return {.admit = [](const HttpRequest&) { return std::nullopt; },
          .answer = [](const HttpRequest&) { return HttpReply{.body = "{}"}; },
          .refuse = [](const RequestRecord&, int, std::string_view) { return std::string(); }};
}

TEST(UnixSocket, IsThisUsersAloneAndAnswers) {
  const TempFolder folder;
  const std::string host = std::string(kUnixHost) + folder.File("s");
  const auto server = HttpServer::Listen({.host = host}, Healthy());
  ASSERT_TRUE(server) << server.error().message;
  EXPECT_EQ((*server)->port(), 0);
  EXPECT_TRUE(CheckHealth(host, 0, 5.0));
  EXPECT_EQ(std::filesystem::status(folder.File("s")).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  EXPECT_FALSE(HttpServer::Listen({.host = host}, Healthy())) << "somebody listens there";
  EXPECT_TRUE(CheckHealth(host, 0, 5.0)) << "and goes on";
}

TEST(UnixSocket, TakesThePlaceOfADeadOneAndOfNothingElse) {
  const TempFolder folder;
  const std::string host = std::string(kUnixHost) + folder.File("s");
  {
    const int dead = socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    folder.File("s").copy(address.sun_path, sizeof(address.sun_path) - 1);
    ASSERT_EQ(bind(dead, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    close(dead);
  }
  EXPECT_FALSE(CheckHealth(host, 0, 1.0));
  EXPECT_TRUE(HttpServer::Listen({.host = host}, Healthy()));  // ends at once
  EXPECT_FALSE(std::filesystem::exists(folder.File("s")));
  std::filesystem::create_directory(folder.File("d"));
  for (const std::string& path : {std::string(), folder.File("d"), folder.File("none/s"),
                                  folder.File(std::string(200, 'x'))}) {
    const auto refused = HttpServer::Listen({.host = std::string(kUnixHost) + path}, Healthy());
    EXPECT_FALSE(refused) << path;
    EXPECT_FALSE(CheckHealth(std::string(kUnixHost) + path, 0, 1.0));
  }
}

}  // namespace
}  // namespace moestro
