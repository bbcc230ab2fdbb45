// What comes over the network and makes no sense ends in a clear refusal, and the daemon lives on.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <csignal>
#include <memory>
#include <thread>

#include "core/json.h"
#include "daemon_process.h"
#include "fabric/ofi/ofi.h"
#include "raw_connection.h"

namespace perdure::server {
namespace {

using nlohmann::json;
using std::chrono::seconds;

class Hostile : public testing::Test {
 protected:
  Hostile() : daemon_(DaemonProcess::serving(pools_.path())) {
    EXPECT_EQ(daemon_->ask("POST", "/v1/pools", R"({"name":"a","bytes":65536})").status, 201);
  }
  ~Hostile() override {
    // After all of it the daemon serves, and ends cleanly.
    EXPECT_EQ(daemon_->ask("GET", "/healthz").body, "ok\n");
    EXPECT_EQ(daemon_->ask("GET", "/v1/pools/a").status, 200);
    daemon_->send(SIGTERM);
    const Ended ended = daemon_->wait();
    EXPECT_EQ(ended.status, 0) << ended.said;
  }

  /// The answer to what is said on the control plane, word by word.
  std::string raw(const std::string& text) {
    RawConnection connection(daemon_->address("control"));
    connection.say(text);
    return connection.hear();
  }
  static std::string post(const std::string& headers, const std::string& body) {
    return "POST /v1/pools HTTP/1.1\r\nHost: a\r\n" + headers + "\r\n" + body;
  }
  static int status_of(const std::string& answer) {
    return answer.size() < 12 ? 0 : std::atoi(answer.c_str() + 9);
  }

  TestDirectory pools_;
  std::unique_ptr<DaemonProcess> daemon_;
};

struct Refused {
  const char* method;
  const char* path;
  std::string body;
  int status;
  const char* code;
};

TEST_F(Hostile, RequestsThatMakeNoSenseGetAnErrorDocument) {
  const std::string deep = std::string(20000, '[') + std::string(20000, ']');
  const std::vector<Refused> cases{
      {"POST", "/v1/pools", "", 400, "invalid-argument"},
      {"POST", "/v1/pools", "{", 400, "invalid-argument"},
      {"POST", "/v1/pools", "[]", 400, "invalid-argument"},
      {"POST", "/v1/pools", "{\"name\":\"\xff\",\"bytes\":4096}", 400, "invalid-argument"},
      {"POST", "/v1/pools", "{\"name\":" + deep + "}", 400, "invalid-argument"},
      {"POST", "/v1/pools", R"({"name":"b","bytes":4096,"x":1})", 400, "invalid-argument"},
      {"POST", "/v1/pools", R"({"name":"../b","bytes":4096})", 400, "invalid-argument"},
      {"POST", "/v1/pools", R"({"name":"b","bytes":"4096"})", 400, "invalid-argument"},
      {"POST", "/v1/pools", R"({"name":"b","bytes":-1})", 400, "invalid-argument"},
      {"POST", "/v1/pools", R"({"format":7,"name":"b","bytes":4096})", 409, "version-mismatch"},
      {"POST", "/v1/pools", R"({"name":"a","bytes":4096})", 409, "already-exists"},
      {"POST", "/v1/pools/a/sessions", "{}", 400, "invalid-argument"},
      {"POST", "/v1/pools/a/sessions", R"({"write":true})", 400, "invalid-argument"},
      {"POST", "/v1/pools/a/sessions", R"({"write":false,"transport":"shm","y":0})", 400,
       "invalid-argument"},
      {"POST", "/v1/pools/a/sessions", R"({"write":false,"transport":"roce"})", 422, "unsupported"},
      {"POST", "/v1/pools/none/sessions", R"({"write":false})", 404, "not-found"},
      {"POST", "/v1/pools/%2e%2e/sessions", R"({"write":false})", 400, "invalid-argument"},
      {"POST", "/v1/pools/a/fence", "{}", 400, "invalid-argument"},
      {"POST", "/v1/pools/a/fence", R"({"epoch":-1})", 400, "invalid-argument"},
      {"POST", "/v1/pools/a/close", R"({"force":true})", 400, "invalid-argument"},
      {"GET", "/v1/pools/none", "", 404, "not-found"},
      {"GET", "/v1/sessions/xyz", "", 400, "invalid-argument"},
      {"GET", "/v1/sessions/1", "", 404, "not-found"},
      {"DELETE", "/v1/sessions/1", "", 404, "not-found"},
      {"DELETE", "/v1/pools/a", "", 404, "not-found"},
      {"GET", "/v2/pools", "", 404, "not-found"},
      {"GET", "/../../etc/passwd", "", 404, "not-found"},
  };
  for (const Refused& each : cases) {
    const auto answer = daemon_->ask(each.method, each.path, each.body);
    const std::string what = std::string(each.path) + " " + each.body.substr(0, 80);
    EXPECT_EQ(answer.status, each.status) << what;
    const json document = json::parse(answer.body, nullptr, false);
    ASSERT_FALSE(document.is_discarded()) << what << ": " << answer.body;
    EXPECT_EQ(document.at("format"), 1);
    EXPECT_EQ(document.at("error").at("code"), each.code) << what;
    EXPECT_FALSE(document.at("error").at("message").get<std::string>().empty());
  }
  EXPECT_EQ(json::parse(daemon_->ask("GET", "/v1/pools").body).at("pools").size(), 1u);
}

TEST_F(Hostile, ABodyBeyondTheLimitIsRefusedHoweverItIsSent) {
  const std::string large(100 * 1024, ' ');
  EXPECT_EQ(daemon_->ask("POST", "/v1/pools", large).status, 400);
  // In chunks, so that no length is announced.
  std::string chunks;
  for (int i = 0; i < 20; ++i) chunks += "2000\r\n" + std::string(0x2000, ' ') + "\r\n";
  EXPECT_EQ(status_of(raw(post("Transfer-Encoding: chunked\r\n", chunks + "0\r\n\r\n"))), 400);
  // Announced and never sent.
  EXPECT_EQ(status_of(raw(post("Content-Length: 99999999999\r\n", "{}"))), 400);
}

TEST_F(Hostile, BodiesThatEndEarlyAreRefused) {
  // The rest never comes: answered when the daemon has waited long enough.
  EXPECT_EQ(status_of(raw(post("Content-Length: 50\r\n", "{\"name\""))), 408);
  EXPECT_EQ(status_of(raw(post("Transfer-Encoding: chunked\r\n", "zz\r\n"))), 400);
  EXPECT_EQ(status_of(raw(post("Content-Length: -5\r\n", "{}"))), 400);
  EXPECT_EQ(status_of(raw(post("Content-Encoding: gzip\r\nContent-Length: 4\r\n", "abcd"))), 400);
  const std::string form = "Content-Type: multipart/form-data; boundary=x\r\nContent-Length: 5\r\n";
  EXPECT_EQ(status_of(raw(post(form, "--x--"))), 400);
}

TEST_F(Hostile, WhatIsNotHttpIsRefusedOrClosed) {
  // hear() ends when the daemon closes; what it says, if anything, is that it refuses.
  const std::string cases[] = {
      "SSH-2.0-OpenSSH_9.2\r\n\r\n",
      "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  // a TLS hello
      std::string(100000, 'A'),
      std::string("\0\0\0\0\r\n\r\n", 8),
      "GET / HTTP/1.1\r\n" + std::string(200000, 'h') + ": x\r\n\r\n",
      "GET / HTTP/9.9\r\nHost: a\r\n\r\n",
      "GET /healthz HTTP/1.1\r\n\r\n",  // without a Host
  };
  for (const std::string& each : cases) {
    RawConnection connection(daemon_->address("control"));
    connection.say(each);
    const std::string answer = connection.hear();
    EXPECT_TRUE(connection.ended()) << each.substr(0, 40);
    EXPECT_TRUE(answer.empty() || status_of(answer) >= 400) << each.substr(0, 40) << answer;
    EXPECT_EQ(answer.find("ok\n"), std::string::npos);
  }
}

TEST_F(Hostile, OneRequestPerConnectionHoweverManyAreSent) {
  const std::string request = "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n";
  const std::string answer = raw(request + request);
  EXPECT_EQ(status_of(answer), 200);
  EXPECT_EQ(answer.find("HTTP/1.1", 8), std::string::npos) << answer;
}

TEST_F(Hostile, HeadersBeyondTheLimitsAreRefused) {
  std::string many = "GET /healthz HTTP/1.1\r\nHost: a\r\n";
  for (int i = 0; i < 100; ++i) many += "a: b\r\n";
  EXPECT_EQ(status_of(raw(many + "\r\n")), 431);
  const std::string large = "a: " + std::string(40000, 'x') + "\r\n";
  EXPECT_EQ(status_of(raw("GET /healthz HTTP/1.1\r\nHost: a\r\n" + large + "\r\n")), 431);
  EXPECT_EQ(status_of(raw("GET /" + std::string(40000, 'x') + " HTTP/1.1\r\n\r\n")), 414);
}

TEST_F(Hostile, AWebPageCanNotCommandTheDaemon) {
  const std::string origin = "Origin: http://evil.example\r\nContent-Length: 27\r\n";
  EXPECT_EQ(status_of(raw(post(origin, R"({"name":"b","bytes":65536} )"))), 403);
  EXPECT_EQ(daemon_->ask("GET", "/v1/pools/b").status, 404);
}

TEST_F(Hostile, ConnectionsThatSayNothingDoNotStopTheDataPlane) {
  const std::string data = daemon_->address("tcp");
  std::vector<std::unique_ptr<RawConnection>> silent;
  for (int i = 0; i < 8; ++i) {
    silent.push_back(std::make_unique<RawConnection>(data));
    silent.back()->say(i % 2 == 0 ? "" : "nonsense that is no request to connect");
  }
  EXPECT_EQ(daemon_->ask("POST", "/v1/pools/a/sessions", R"({"write":false})").status, 201);
}

TEST_F(Hostile, RequestsAtTheSameTimeAreAllAnswered) {
  std::vector<std::thread> requesters;
  std::atomic<int> right{0};
  for (int thread = 0; thread < 8; ++thread) {
    requesters.emplace_back([&] {
      for (int i = 0; i < 20; ++i) {
        right += daemon_->ask("GET", "/v1/pools/a").status == 200;
        right += daemon_->ask("POST", "/v1/pools/a/fence", R"({"epoch":1})").status == 200;
      }
    });
  }
  for (std::thread& each : requesters) each.join();
  EXPECT_EQ(right, 8 * 20 * 2);
}

}  // namespace
}  // namespace perdure::server
