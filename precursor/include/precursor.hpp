// precursor.hpp: the library precursor for C++17, header-only over precursor.h. Objects own their handles, errors are
// exceptions, and nothing is copied. What each call does and what its errors mean is described in precursor.h.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "precursor.h"

// Not `precursor`, which is a type of the C interface.
namespace precursor_cpp {

// A call returned a code other than PRECURSOR_OK.
class Error : public std::runtime_error {
public:
    Error(int code, const char *message)
        : std::runtime_error(message && *message ? message : precursor_strerror(code)), code_(code)
    {
    }
    int code() const noexcept { return code_; }

private:
    int code_;
};

namespace detail {
struct Message {
    char text[512] = {0};
    void check(int code) const
    {
        if (code != PRECURSOR_OK)
            throw Error(code, text);
    }
};
inline void check(int code)
{
    if (code != PRECURSOR_OK)
        throw Error(code, nullptr);
}
inline const std::uint8_t *bytes(std::string_view record)
{
    return reinterpret_cast<const std::uint8_t *>(record.data());
}
} // namespace detail

// Options with their defaults; change fields before opening.
struct Options : precursor_options {
    Options() : precursor_options{} { precursor_options_default(this, sizeof(precursor_options)); }
};

// Appends from one thread at a time. The destructor closes and discards the error: call close().
class Appender {
public:
    explicit Appender(const std::string &path, const precursor_options &options = Options())
    {
        detail::Message message;
        message.check(precursor_open(path.c_str(), &options, &handle_, message.text, sizeof message.text));
    }
    Appender(Appender &&other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    Appender &operator=(Appender &&other) noexcept
    {
        std::swap(handle_, other.handle_);
        return *this;
    }
    Appender(const Appender &) = delete;
    Appender &operator=(const Appender &) = delete;
    ~Appender()
    {
        if (handle_)
            precursor_close(handle_, nullptr, 0);
    }

    // Returns the end of the record.
    std::uint64_t append(std::string_view record)
    {
        std::uint64_t position = 0;
        detail::check(precursor_append(handle_, detail::bytes(record), record.size(), &position));
        return position;
    }
    // Memory for a record of at most `len` bytes, valid until the next call.
    std::uint8_t *reserve(std::size_t len)
    {
        std::uint8_t *at = nullptr;
        detail::check(precursor_reserve(handle_, len, &at));
        return at;
    }
    std::uint64_t commit(std::size_t len)
    {
        std::uint64_t position = 0;
        detail::check(precursor_commit(handle_, len, &position));
        return position;
    }
    // Returns the durable position.
    std::uint64_t sync_to(std::uint64_t position)
    {
        std::uint64_t durable = 0;
        detail::Message message;
        message.check(precursor_sync_to(handle_, position, &durable, message.text, sizeof message.text));
        return durable;
    }
    std::uint64_t position() const { return precursor_position(handle_); }
    bool survives_process() const { return precursor_survives_process(handle_) != 0; }
    // Why this mode was chosen and what it lacks.
    std::string reasons() const
    {
        const char *text = precursor_reasons(handle_);
        return text ? text : "";
    }
    precursor_stats stats() const
    {
        precursor_stats stats{};
        stats.size = sizeof stats;
        detail::check(precursor_get_stats(handle_, &stats));
        return stats;
    }
    void close()
    {
        detail::Message message;
        message.check(precursor_close(std::exchange(handle_, nullptr), message.text, sizeof message.text));
    }

private:
    precursor *handle_ = nullptr;
};

// Appends from many threads at a time. close() while no other call runs.
class ManyAppender {
public:
    explicit ManyAppender(const std::string &path, const precursor_options &options = Options())
    {
        detail::Message message;
        message.check(precursor_open_many(path.c_str(), &options, &handle_, message.text, sizeof message.text));
    }
    ManyAppender(ManyAppender &&other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    ManyAppender &operator=(ManyAppender &&other) noexcept
    {
        std::swap(handle_, other.handle_);
        return *this;
    }
    ManyAppender(const ManyAppender &) = delete;
    ManyAppender &operator=(const ManyAppender &) = delete;
    ~ManyAppender()
    {
        if (handle_)
            precursor_many_close(handle_, nullptr, 0);
    }

    std::uint64_t append(std::string_view record) const
    {
        std::uint64_t position = 0;
        detail::check(precursor_many_append(handle_, detail::bytes(record), record.size(), &position));
        return position;
    }
    std::uint64_t sync_to(std::uint64_t position) const
    {
        std::uint64_t durable = 0;
        detail::Message message;
        message.check(precursor_many_sync_to(handle_, position, &durable, message.text, sizeof message.text));
        return durable;
    }
    void close()
    {
        detail::Message message;
        message.check(precursor_many_close(std::exchange(handle_, nullptr), message.text, sizeof message.text));
    }

private:
    precursor_many *handle_ = nullptr;
};

// A record; `bytes` is valid until the next call on its reader.
struct Record {
    std::uint64_t number;
    std::uint64_t time_ns; // 0 = none
    std::uint64_t position;
    std::string_view bytes;
};

// Reads a framed file or pattern, also while it is written.
class Reader {
public:
    explicit Reader(const std::string &path)
    {
        detail::Message message;
        message.check(precursor_reader_open(path.c_str(), &handle_, message.text, sizeof message.text));
    }
    Reader(Reader &&other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    Reader &operator=(Reader &&other) noexcept
    {
        std::swap(handle_, other.handle_);
        return *this;
    }
    Reader(const Reader &) = delete;
    Reader &operator=(const Reader &) = delete;
    ~Reader()
    {
        if (handle_)
            precursor_reader_close(handle_);
    }

    // The next record, or nothing if none is published within this time.
    std::optional<Record> next(std::chrono::microseconds wait = std::chrono::microseconds(0))
    {
        precursor_record record{};
        record.size = sizeof record;
        detail::Message message;
        const std::uint64_t wait_us = wait.count() > 0 ? static_cast<std::uint64_t>(wait.count()) : 0;
        int code = precursor_reader_next(handle_, &record, wait_us, message.text, sizeof message.text);
        if (code == PRECURSOR_NONE)
            return std::nullopt;
        message.check(code);
        const std::string_view bytes(reinterpret_cast<const char *>(record.bytes), record.len);
        return Record{record.number, record.time_ns, record.position, bytes};
    }
    void seek(enum precursor_seek to, std::uint64_t value = 0)
    {
        detail::Message message;
        message.check(precursor_reader_seek(handle_, to, value, message.text, sizeof message.text));
    }
    void spin(bool on) { detail::check(precursor_reader_spin(handle_, on)); }
    // A precursor_writer.
    std::uint32_t writer() const { return precursor_reader_writer(handle_); }

private:
    precursor_reader *handle_ = nullptr;
};

} // namespace precursor_cpp
