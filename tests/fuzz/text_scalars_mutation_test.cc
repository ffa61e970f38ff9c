// The deterministic part of fuzzing tables, JSON, logs of trainers and of NCCL: the same few
// thousand mutations of good files in every run.
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "tests/audit/dump_builder.h"
#include "tests/audit/rollout_files.h"
#include "tests/fuzz/audit_bytes.h"
#include "tests/fuzz/mutate.h"
#include "tests/fuzz/point_bytes.h"
#include "tests/support/files.h"

namespace plumbline::audit {
namespace {

const char* const kFiles[] = {"megatron.log",   "nanogpt.log",       "hugging_face.log",
                              "torchtitan.log", "key_value.txt",     "metrics.csv",
                              "scalars.jsonl",  "trainer_state.json"};

std::string Data(const std::string& name) {
  return test::ReadFile(std::string(PLUMBLINE_SOURCE_DIR) + "/tests/audit/data/trainer_logs/" +
                        name);
}

std::string Read(const std::string& bytes, const PointFormat& format) {
  return ReadPointBytes(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), format);
}

const PointFormat* Formats(size_t i) {
  const PointFormat* const formats[] = {&CsvFormat(), &JsonLinesFormat(), &TrainerLogFormat()};
  return formats[i % 3];
}

std::string Mutate(const std::string& bytes, std::mt19937& random) {
  using namespace std::string_view_literals;
  return MutateWith(bytes, "\0\xFF\x80\"'{}[](),;:|=%/-+.eE09\\\n\r\t\x1bnNi"sv, random);
}

TEST(TextScalarsMutation, Bytes) {
  std::mt19937 random(1);
  for (const char* name : kFiles) {
    const std::string good = Data(name).substr(0, 4000);
    for (size_t i = 0; i < 300; ++i) Read(Mutate(good, random), *Formats(i));
  }
}

TEST(TextScalarsMutation, PackedBytes) {
  std::mt19937 random(2);
  for (const char* name : kFiles) {
    const std::string good = testing::Gzip(Data(name).substr(0, 4000));
    for (size_t i = 0; i < 60; ++i) Read(Mutate(good, random), *Formats(i));
  }
}

// Flips every byte of the beginning, in turn.
TEST(TextScalarsMutation, EachByteFlipped) {
  for (const char* name : kFiles) {
    std::string bytes = Data(name).substr(0, 500);
    for (size_t at = 0; at < bytes.size(); ++at) {
      for (const int mask : {0x01, 0x80, 0xFF}) {
        bytes[at] = static_cast<char>(bytes[at] ^ mask);
        Read(bytes, *Formats(at + static_cast<size_t>(mask)));
        bytes[at] = static_cast<char>(bytes[at] ^ mask);
      }
    }
  }
}

// Random sequences of the pieces of which these formats consist.
TEST(TextScalarsMutation, RandomGrammar) {
  static constexpr std::string_view kPieces[] = {
      "step", "iteration",  "{'", "loss", "': ",    "\"", "1",         ".5",    "e-4",
      "nan",  "inf",        ",",  ", ",   "\n",     "\r", "|",         ":",     " ",
      "=",    "[",          "]",  "(",    ")",      "}",  "{",         "100%|", "/10",
      "ms",   "\t",         ";",  "#",    "\x1b[3", "m",  "[rank3]: ", "epoch", "1,234",
      "null", "\"step\": ", "'",  "--",   "+",      "E",  "\\"};
  std::mt19937 random(3);
  for (size_t i = 0; i < 4000; ++i) {
    std::string bytes = i % 4 == 0 ? "step,loss\n" : i % 4 == 1 ? "{\"step\": 1, " : "";
    for (uint32_t n = random() % 60; n > 0; --n) bytes += kPieces[random() % std::size(kPieces)];
    for (size_t format = 0; format < 3; ++format) Read(bytes, *Formats(format));
  }
}

// Files of loggers, each as itself.
struct LoggerFile {
  const char* name;
  const PointFormat& (*format)();
};
constexpr LoggerFile kLoggerFiles[] = {{"run-2.swanlab", SwanlabFormat},
                                       {"backup.swanlab", SwanlabFormat},
                                       {"comet.zip", CometFormat},
                                       {"sacred_metrics.json", SacredFormat}};

std::string Written(const LoggerFile& file) {
  return test::ReadFile(std::string(PLUMBLINE_SOURCE_DIR) + "/tests/audit/data/loggers/" +
                        file.name);
}

TEST(LoggerFilesMutation, Bytes) {
  std::mt19937 random(5);
  for (const LoggerFile& file : kLoggerFiles) {
    const std::string good = Written(file);
    for (size_t i = 0; i < 200; ++i) Read(Mutate(good, random), file.format());
  }
}

TEST(LoggerFilesMutation, EachByteFlippedAndEachLength) {
  for (const LoggerFile& file : kLoggerFiles) {
    std::string bytes = Written(file);
    for (size_t at = 0; at < bytes.size(); at += 1 + bytes.size() / 1500) {
      Read(bytes.substr(0, at), file.format());
      bytes[at] = static_cast<char>(bytes[at] ^ 0x41);
      Read(bytes, file.format());
      bytes[at] = static_cast<char>(bytes[at] ^ 0x41);
    }
  }
}

std::string NcclLog() {
  std::string bytes;
  for (int rank = 0; rank < 2; ++rank) {
    const std::string head =
        "node:" + std::to_string(100 + rank) + ":200 [" + std::to_string(rank) + "] NCCL INFO ";
    const std::string made = "comm 0x5" + std::to_string(rank) + " rank " + std::to_string(rank) +
                             " nranks 2 cudaDev 0 nvmlDev 0 busId 1b000 commId 0xabc - Init ";
    bytes += head + "ncclCommInitRank " + made + "START\n" + head + "Channel 00/02 : 0 1\n" + head +
             "Channel 01/02 : 1 0\n" + head + made + "COMPLETE\n";
    for (int i = 0; i < 6; ++i) {
      bytes += head + "AllReduce: opCount " + std::to_string(i) +
               " sendbuff 0x7f recvbuff 0x7f count 64 datatype 9 op 0 root 0 comm 0x5" +
               std::to_string(rank) + " [nranks=2] stream 0x1\n";
    }
  }
  return bytes;
}

TEST(NcclMutation, Bytes) {
  std::mt19937 random(4);
  const std::string good = NcclLog();
  const FuzzRounds rounds(400);
  for (int i = 0; rounds.Due(i); ++i) {
    const std::string bytes = Mutate(good, random);
    AuditBytes(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(),
               i % 4 == 0 ? "" : "nccl-log");
  }
}

TEST(NcclMutation, EachByteFlipped) {
  std::string bytes = NcclLog();
  for (size_t at = 0; at < bytes.size(); at += 3) {
    bytes[at] = static_cast<char>(bytes[at] ^ (at % 2 == 0 ? 1 : 0x10));
    AuditBytes(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), "nccl-log");
    bytes[at] = static_cast<char>(bytes[at] ^ (at % 2 == 0 ? 1 : 0x10));
  }
}

}  // namespace
}  // namespace plumbline::audit
