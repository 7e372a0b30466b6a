-- The principal for which a schedule runs, and the reason for which the service paused it; empty if it did not.
ALTER TABLE schedules ADD COLUMN creator TEXT NOT NULL DEFAULT 'local';
ALTER TABLE schedules ADD COLUMN pause_reason TEXT NOT NULL DEFAULT '';

-- The principal that added a time; empty for the service itself and for `local`.
ALTER TABLE schedule_times ADD COLUMN principal TEXT NOT NULL DEFAULT '';
