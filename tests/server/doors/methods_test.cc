// Every method of a real server, listed by reflection: refused without credentials, and refused for
// runs that are not the caller's. A new method fails here until server/access/methods.cc lists it.
#include "server/access/methods.h"

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/dynamic_message.h>
#include <google/protobuf/io/coded_stream.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/server/doors/support.h"
#include "tests/server/ingest/raw_call.h"

namespace plumbline::test {
namespace {

using google::protobuf::DescriptorPool;
using google::protobuf::MethodDescriptor;
using testing::HasSubstr;

// Parses ServerReflectionResponse.list_services_response (6) .service (1) .name (1) by hand,
// because the generated code is not in Debian's headers.
std::vector<std::string> ServiceNames(const std::string& response) {
  using google::protobuf::io::CodedInputStream;
  std::vector<std::string> names;
  const auto field = [](CodedInputStream& in, uint32_t number, std::string* bytes) {
    while (const uint32_t tag = in.ReadTag()) {
      uint32_t size = 0;
      if ((tag & 7) != 2 || !in.ReadVarint32(&size)) return false;
      bytes->clear();
      if (!in.ReadString(bytes, static_cast<int>(size))) return false;
      if (tag >> 3 == number) return true;
    }
    return false;
  };
  const auto stream = [](const std::string& bytes) {
    return CodedInputStream(reinterpret_cast<const uint8_t*>(bytes.data()),
                            static_cast<int>(bytes.size()));
  };
  std::string list, service, name;
  CodedInputStream top = stream(response);
  if (!field(top, 6, &list)) return names;
  CodedInputStream services = stream(list);
  while (field(services, 1, &service)) {
    CodedInputStream inner = stream(service);
    if (field(inner, 1, &name)) names.push_back(name);
  }
  return names;
}

// The methods of services that are not in the descriptors that we link.
const std::map<std::string, std::vector<std::string>>& ForeignServices() {
  static const std::map<std::string, std::vector<std::string>> services = {
      {"grpc.health.v1.Health", {"Check", "Watch"}},
      {"grpc.reflection.v1alpha.ServerReflection", {"ServerReflectionInfo"}},
  };
  return services;
}

class DoorsMethods : public testing::Test {
 protected:
  void SetUp() override {
    server_ = StartWith(folder_,
                        "[listen]\nreflection = true\n"
                        "[[access]]\nname = 'all'\ntoken_file = '" +
                            WriteSecret(folder_, "all.tokens", all_.line) +
                            "'\nscopes = ['read', 'write', 'admin']\n"
                            "[[access]]\nname = 'mine'\ntoken_file = '" +
                            WriteSecret(folder_, "mine.tokens", mine_.line) +
                            "'\nscopes = ['read', 'write', 'admin']\nruns = ['mine*']\n");
    ASSERT_FALSE(server_->address().empty()) << server_->process().errors();
  }

  std::shared_ptr<grpc::Channel> As(const std::string& token_file) const {
    transport::Credentials credentials;
    credentials.token_file = token_file;
    return ChannelTo(server_->address(), credentials);
  }

  // Returns "/package.Service/Method" of all methods that the server lists.
  std::vector<std::string> Paths() const {
    const Answer answer =
        CallOnce(As(all_.file), "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                 std::string("\x3a\x01*", 3));  // list_services (7)
    std::vector<std::string> services = ServiceNames(answer.bytes);
    EXPECT_GE(services.size(), 3u) << answer.status.error_message();
    services.emplace_back("grpc.health.v1.Health");  // it has no descriptor, so it is not listed
    std::vector<std::string> paths;
    for (const std::string& service : services) {
      const auto foreign = ForeignServices().find(service);
      const auto* known = DescriptorPool::generated_pool()->FindServiceByName(service);
      EXPECT_TRUE(known != nullptr || foreign != ForeignServices().end()) << service;
      for (int i = 0; known != nullptr && i < known->method_count(); ++i) {
        paths.push_back("/" + service + "/" + known->method(i)->name());
      }
      if (foreign == ForeignServices().end()) continue;
      for (const std::string& method : foreign->second)
        paths.push_back("/" + service + "/" + method);
    }
    return paths;
  }

  TempFolder folder_;
  const TestToken all_ = NewToken(folder_, "all.token"), mine_ = NewToken(folder_, "mine.token");
  std::unique_ptr<Plumbd> server_;
};

TEST_F(DoorsMethods, EachIsListedAndClosedToWhoShowsNothing) {
  const auto anonymous = ChannelTo(server_->address(), {});
  const std::vector<std::string> paths = Paths();
  EXPECT_GE(paths.size(), 14u);
  for (const std::string& path : paths) {
    const bool listed = std::any_of(server::MethodRules().begin(), server::MethodRules().end(),
                                    [&](const auto& rule) { return rule.path == path; });
    EXPECT_TRUE(listed) << path << ": add its scope to server/access/methods.cc";
    const Answer answer = CallOnce(anonymous, path, "");
    if (path == "/grpc.health.v1.Health/Check" || path == "/grpc.health.v1.Health/Watch") {
      EXPECT_NE(answer.status.error_code(), grpc::StatusCode::UNAUTHENTICATED) << path;
      continue;
    }
    EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::UNAUTHENTICATED)
        << path << " " << answer.status.error_message();
    EXPECT_THAT(answer.status.error_message(), HasSubstr("this server requires authentication"));
    EXPECT_EQ(answer.bytes, "");
  }
}

TEST_F(DoorsMethods, WhatIsNotListedIsForThoseWhoMayDoEverything) {
  const std::string path = "/plumbline.v1.Query/NobodyThoughtOfThis";
  EXPECT_EQ(CallOnce(As(mine_.file), path, "").status.error_code(),
            grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(CallOnce(As(all_.file), path, "").status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
}

// In every request, the field `run` is set to a run of others.
TEST_F(DoorsMethods, EachRefusesARunOfOthers) {
  const auto channel = As(mine_.file);
  const auto* query = DescriptorPool::generated_pool()->FindServiceByName("plumbline.v1.Query");
  google::protobuf::DynamicMessageFactory factory;
  std::vector<std::string> without_run;
  for (int i = 0; i < query->method_count(); ++i) {
    const MethodDescriptor& method = *query->method(i);
    const std::string path = "/plumbline.v1.Query/" + method.name();
    const server::MethodRule rule = server::RuleOfMethod(path);
    const auto* field = method.input_type()->FindFieldByName("run");
    if (field == nullptr) {
      without_run.push_back(method.name());
      continue;
    }
    std::unique_ptr<google::protobuf::Message> request(
        factory.GetPrototype(method.input_type())->New());
    request->GetReflection()->SetString(request.get(), field, "theirs");
    const Answer answer = CallOnce(channel, path, request->SerializeAsString());
    EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::PERMISSION_DENIED)
        << path << ": ask Lease::Check about the run";
    if (!rule.by_run) continue;
    EXPECT_THAT(answer.status.error_message(), HasSubstr("run \"theirs\""));
  }
  // These have no run, or concern incidents: doors/token_test.cc tests them one by one.
  EXPECT_THAT(without_run,
              testing::UnorderedElementsAre("ListRuns", "GetServerInfo", "ListIncidentHistory",
                                            "UpdateIncident", "RequestCapsule", "GetCapsule"));
}

TEST_F(DoorsMethods, ReflectionIsThereOnlyWhenRequested) {
  const auto plain = StartWith(folder_, "");
  EXPECT_EQ(CallOnce(ChannelTo(plain->address(), {}),
                     "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                     std::string("\x3a\x01*", 3))
                .status.error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
}

}  // namespace
}  // namespace plumbline::test
