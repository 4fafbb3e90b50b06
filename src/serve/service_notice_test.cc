// SPDX-License-Identifier: MIT
#include "serve/service_notice.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "tests/support/notice_socket_testing.h"
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

}  // namespace
}  // namespace moestro
