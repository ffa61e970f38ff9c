// The store's database with readers and its writer at the same time.
#include "server/store/store_database.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace plumbline::test {
namespace {

using server::StoreDatabase;
using server::TileReader;

// A database in memory has one connection, which only one thread may use at a time: reading the
// size during a query would be a second use.
TEST(StoreDatabase, TheWriterWaitsForReadersOfADatabaseInMemory) {
  auto opened = StoreDatabase::Open("", {});
  ASSERT_TRUE(opened.ok()) << opened.status();
  StoreDatabase& database = **opened;
  for (const bool size : {true, false}) {
    std::atomic<bool> done{false};
    std::thread writer;
    const absl::Status read = database.Read([&](TileReader*) {
      writer = std::thread([&] {
        if (size) {
          EXPECT_GT(database.Bytes(), 0u);
        } else {
          EXPECT_TRUE(database.Write({}, {}, 1).ok());
        }
        done = true;
      });
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      EXPECT_FALSE(done) << (size ? "the size was read" : "jobs were written")
                         << " with the connection that a query was using";
      return absl::OkStatus();
    });
    writer.join();
    EXPECT_TRUE(read.ok()) << read;
    EXPECT_TRUE(done);
  }
}

}  // namespace
}  // namespace plumbline::test
