// Small logs in a temporary folder, for the framed log's tests.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "base/framed_log.h"
#include "tests/support/files.h"

namespace plumbline {

using test::ReadFile;
using test::TempFolder;
using test::WriteFile;

// Returns payloads of many kinds: empty, short, incompressible, compressible above the threshold.
inline std::vector<std::string> SamplePayloads() {
  std::mt19937 random(11);
  std::string noise(300, '\0');
  for (char& c : noise) c = static_cast<char>(random());
  return {"", "a", noise, std::string(600, 'x') + "end", "last"};
}

inline void WriteLog(const std::string& path, const std::vector<std::string>& payloads) {
  auto writer = FramedLogWriter::Open(path);
  ASSERT_TRUE(writer.ok()) << writer.status();
  for (const std::string& p : payloads) {
    ASSERT_TRUE((*writer)->Append(FrameType::kBatch, p).ok());
  }
}

struct Reading {
  std::vector<std::string> payloads;
  FramedLogReader::Result end = FramedLogReader::Result::kFrame;
  std::string error;
  absl::Status opened;
};

inline Reading ReadLog(const std::string& path, FramedLogOptions options = {}) {
  Reading reading;
  auto reader = FramedLogReader::Open(path, options);
  reading.opened = reader.status();
  if (!reader.ok()) return reading;
  FrameType type;
  std::string payload;
  while ((reading.end = (*reader)->Next(&type, &payload)) == FramedLogReader::Result::kFrame) {
    EXPECT_EQ(type, FrameType::kBatch);
    reading.payloads.push_back(payload);
  }
  reading.error = (*reader)->error();
  return reading;
}

}  // namespace plumbline
