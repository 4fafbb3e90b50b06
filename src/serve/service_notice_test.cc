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

TEST(ServiceNotice, AManagerThatDoesNotReadHoldsUpNothing) {
  const TempFolder folder;
  const NoticeSocket manager(folder.File("notify"));
  ServiceNotice notice(folder.File("notify"));
  for (int i = 0; i < 5000; ++i) notice.Send("STATUS=again");
  EXPECT_EQ(manager.Receive(), "STATUS=again");
}

}  // namespace
}  // namespace moestro
