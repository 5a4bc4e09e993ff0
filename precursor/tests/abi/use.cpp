// Uses precursor.hpp: objects close their handles, errors are exceptions, and a reader follows.
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <precursor.hpp>

using namespace precursor_cpp;

#define EXPECT(what) \
    do { if (!(what)) { std::fprintf(stderr, "line %d: %s\n", __LINE__, #what); return 1; } } while (0)

int main(int argc, char **argv)
{
    EXPECT(argc == 2);
    const std::string path = std::string(argv[1]) + "/journal";
    Options options;
    options.mode = PRECURSOR_PLAIN;
    options.framed = 1;
    options.times = 1;
    std::uint64_t last = 0;
    {
        Appender journal(path, options);
        Reader reader(path);
        reader.spin(true);
        last = journal.append("one");
        std::memcpy(journal.reserve(10), "two and more", 10);
        EXPECT(!reader.next()->bytes.compare("one") && !reader.next());
        last = journal.commit(3);
        auto found = reader.next(std::chrono::seconds(60));
        EXPECT(found && found->bytes == "two" && found->number == 1 && found->position == last && found->time_ns > 0);
        EXPECT(reader.writer() == PRECURSOR_WRITER_ALIVE);
        EXPECT(journal.sync_to(last) == last && journal.position() == last && journal.stats().appends == 2);
        EXPECT(!journal.reasons().empty());

        bool busy = false;
        try {
            Appender second(path, options);
        } catch (const Error &error) {
            busy = error.code() == PRECURSOR_BUSY && std::string(error.what()).find("open") != std::string::npos;
        }
        EXPECT(busy);
        Appender moved(std::move(journal));
        EXPECT(moved.append("three") > last);
        // The destructor closes: the file can be opened again below.
    }
    Appender again(path, options);
    again.close();
    bool closed = false;
    try {
        again.append("refused");
    } catch (const Error &error) {
        closed = error.code() == PRECURSOR_INVALID && std::strcmp(error.what(), precursor_strerror(error.code())) == 0;
    }
    EXPECT(closed);

    Reader reader(path);
    reader.seek(PRECURSOR_SEEK_AFTER, last);
    EXPECT(reader.next()->bytes == "three" && !reader.next(std::chrono::milliseconds(1)));
    reader.seek(PRECURSOR_SEEK_NUMBER, 1);
    EXPECT(reader.next()->bytes == "two");
    EXPECT(reader.writer() == PRECURSOR_WRITER_UNKNOWN);

    ManyAppender many(path + "-many");
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; i++)
        threads.emplace_back([&many] {
            for (int n = 0; n < 100; n++)
                many.append("of many");
        });
    for (auto &thread : threads)
        thread.join();
    Reader beside(path + "-many");
    int count = 0;
    while (count < 300 && beside.next(std::chrono::seconds(60)))
        count++;
    EXPECT(count == 300);
    many.close();
    std::puts("all as promised");
    return 0;
}
